"""Is what the first page shows what the tables and the zoo's models say?"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from latentcode.experiments.moves.problems import problem
from latentcode.experiments.moves.states import KINDS, MOVES, TASKS
from latentcode.experiments.moves.stored import RESULTS, criterion, states, weights_of

FILE = RESULTS / "moves.json"
STORED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def test_what_is_stored_is_what_the_tables_say() -> None:
    assert STORED["states"] == states()
    assert [move["criterion"] for move in STORED["moves"]] == [criterion(move) for move in MOVES]
    assert STORED["weights"] == {
        f"{task}-{kind}": weights_of(f"{task}-{kind}") for task in TASKS for kind in KINDS}
    assert FILE.stat().st_size < 150_000


def test_rates_are_those_of_the_study_s_page() -> None:
    found = {(s["task"], s["kind"], s["move"]): s for s in STORED["states"]}
    page = (RESULTS / "context" / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.split("## In which layers")[0].split("Both directions")[1]
               .split("To sum:")[0].split("\n") if line.startswith("| codes at the context (0, 1)")]
    for kind, told in zip(KINDS, line.split("|")[2:5], strict=True):
        row = found["sraven", kind, "code context"]["rows"][0]
        assert told.strip() == (f"{row['shares']['operation']:.2f} ({row['low']:.2f} to "
                                f"{row['high']:.2f})")
        assert sum(row["shares"].values()) == pytest.approx(1.0, abs=1e-3)
    said = pd.read_csv(RESULTS / "context" / "tables" / "statements.csv", dtype=str)
    for state in found.values():
        move = next(m for m in MOVES if (m.task, m.name) == (state["task"], state["move"]))
        if state["task"] == "sraven" and move.statement:
            (row,) = said[(said["role"] == "confirmatory") & (said["kind"] == state["kind"])
                          & (said["statement"] == move.statement)
                          & (said["primary"] == "True")].to_dict("records")
            assert state["verdict"] == row["verdict"]
    # Fuzzy logic was explored, and of linear attention no run of text counts.
    assert {s["verdict"] for s in found.values() if s["task"] == "logic"} == {"exploratory"}
    assert {s["verdict"] for s in found.values()
            if (s["task"], s["kind"]) == ("text", "linear")} == {"undecided"}


@pytest.mark.parametrize("task", TASKS)
def test_a_problem_is_drawn_and_answered_again_as_it_is_stored(task: str) -> None:
    kept = STORED["problems"][task]
    assert [one["number"] for one in kept] == [0, 1, 2, 3]
    now = problem(task, 1)
    again = {**now, "kinds": kept[1]["kinds"]}
    assert again == kept[1]
    for kind in KINDS:
        ours, stored = now["kinds"][kind], kept[1]["kinds"][kind]
        assert ours["known"] == stored["known"]
        assert {move: came for move, (came, _) in ours["moves"].items()} == {
            move: came for move, (came, _) in stored["moves"].items()}


@pytest.mark.parametrize("task", TASKS)
def test_the_classes_say_whose_answer_it_is(task: str) -> None:
    order = ("base", "operation", "operands", "answer")
    moved = set()
    for one in STORED["problems"][task]:
        assert len(set(one["four"])) == 4
        assert {token for place in one["places"].values() for token in place}
        for kind, said in one["kinds"].items():
            if task != "text" or kind == "softmax":
                assert said["known"]
            for came, answer in said["moves"].values():
                moved.add(came)
                if came == "else":
                    assert task == "logic" or answer not in one["four"]
                elif task == "logic":
                    assert abs(float(answer) - float(one["four"][order.index(came)])) <= 0.06
                else:
                    assert answer == one["four"][order.index(came)]
    assert {"operation", "operands", "base"} <= moved
