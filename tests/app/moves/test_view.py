"""Does the first page say what is stored, and no more?"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from latentcode.app.data.moves import read_stored
from latentcode.app.moves.component import is_state
from latentcode.app.moves.static import static_page
from latentcode.app.moves.view import view

STORED = read_stored()
VIEW = view(STORED)


def of(state: str) -> dict[str, Any]:
    found: dict[str, Any] = VIEW["states"][state]
    return found


def test_a_sentence_is_a_claim_only_where_its_criterion_is_met() -> None:
    verdicts = {f"{s['task']}/{s['kind']}/{s['move']}": s["verdict"] for s in STORED["states"]}
    for name, verdict in verdicts.items():
        assert of(name)["question"].endswith("." if verdict == "met" else "?"), name
    assert of("sraven/hyla/code context")["question"] == (
        "In HYLA attention, codes at the context carry the operation.")
    assert of("sraven/softmax/code context")["said"] == "refuted"
    assert of("logic/hyla/code context")["said"] == "exploratory: decides nothing"
    assert of("sraven/hyla/value response")["said"] == "no criterion was written"
    assert "No run counts" in of("text/linear/code from where")["told"]


def test_numbers_say_where_they_come_from_and_where_the_model_differs() -> None:
    shown = of("sraven/hyla/code context")
    assert "0.68 (0.59 to 0.87)" in shown["told"]
    assert "at most 0.28" in shown["told"]
    assert "3 confirmatory seeds (3 to 5)" in shown["measured"]
    assert shown["here"].endswith("0.98, more than in any of them.")
    assert of("sraven/hyla/code response")["here"].endswith("0.43, less than in any of them.")
    assert of("sraven/softmax/code context")["here"].endswith("0.00.")
    assert of("text/hyla/code from where")["mark"] is None


def test_what_would_refute_it() -> None:
    told = " ".join(of("sraven/hyla/code context")["refute"])
    for part in ("other operands alone", "a problem with a third rule", "by 0.10 on average",
                 "Codes of all other queries bring it in 0.05", "in 0.01 (0.00 to 0.01)"):
        assert part in told
    assert "expected not to be met" in " ".join(of("sraven/linear/code operands")["refute"])
    assert "exploratory" in " ".join(of("logic/linear/code context")["refute"])
    assert "decides nothing" in " ".join(of("sraven/hyla/value operands")["refute"])
    assert "95 % interval above 0" in VIEW["criteria"][of("sraven/hyla/code context")["file"]]


@pytest.mark.parametrize("task", ["sraven", "logic", "text"])
def test_problems_show_their_tokens_and_every_outcome_in_words(task: str) -> None:
    for one, stored in zip(VIEW["problems"][task], STORED["problems"][task], strict=True):
        for side in ("base", "source"):
            shown = {int(n) for n in re.findall(r'data-token="(\d+)"', one[side]["html"])}
            assert {token for place in one["places"].values() for token in place} <= shown
        for kind, said in one["kinds"].items():
            for move, came in said["moves"].items():
                assert [came["class"], came["answer"]] == stored["kinds"][kind]["moves"][move]
                assert came["said"].startswith("It ")


def test_what_a_browser_says_is_looked_at() -> None:
    good = {"task": "text", "kind": "linear", "put": "codes", "drop": "what", "problem": 3}
    assert is_state(VIEW, good)
    for wrong in (None, [], {}, {**good, "task": "x"}, {**good, "kind": "x"}, {**good, "put": "x"},
                  {**good, "drop": "context"}, {**good, "problem": "3"}, {**good, "task": ["text"]},
                  {**good, "problem": -1}, {**good, "problem": True}):
        assert not is_state(VIEW, wrong), wrong


def test_the_static_page_holds_everything_and_asks_for_nothing() -> None:
    page = static_page()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == VIEW
    assert not re.search(r'(src|href)="(?!index\.html)', page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace(
        "http-equiv", "")
