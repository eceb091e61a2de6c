"""The page of the evidence: claims are found, filtered, opened; what is behind them is offered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_app import page_test, shown, text
from streamlit.testing.v1 import AppTest

from latentcode.app.data.evidence import compared, evidence, own_number
from latentcode.app.data.story import story
from latentcode.app.pages.evidence import VERDICT_KEY, WORDS_KEY


def listed(app: AppTest) -> list[str]:
    return app.dataframe[0].value["claim"].tolist()


def test_claims_are_filtered_and_found() -> None:
    table = evidence().table
    app = shown("evidence")
    assert listed(app) == table["claim"].tolist()
    app.segmented_control(VERDICT_KEY).set_value("differs").run()
    assert listed(app) == table[table["verdict"] == "differs"]["claim"].tolist()
    assert app.query_params["verdict"] in ("differs", ["differs"])
    app.text_input(WORDS_KEY).set_value("ambiguous half").run()
    assert 0 < len(listed(app)) < (table["verdict"] == "differs").sum()
    app.text_input(WORDS_KEY).set_value("no such words").run()
    assert "None of the" in app.info[0].value


def test_the_story_comes_first_and_leads_to_its_claims() -> None:
    app = shown("evidence")
    said = text(app)
    chapters = story(evidence())
    assert 5 <= len(chapters) <= 8
    for number, chapter in enumerate(chapters, 1):
        assert f"**{number}. {chapter.title}**" in said.replace("\\", "")
        assert len(chapter.text) < 420
        for _, verdict in chapter.verdicts:
            assert verdict in said
    assert len(app.get("image")) == sum(chapter.picture is not None for chapter in chapters)
    assert ":green-badge[✔ HYLA met]" in said
    assert ":orange-badge[✘ softmax refuted]" in said
    app.button("story claim 1").click().run()
    assert app.query_params["claim"] == "fig2b-terms-decodable"
    assert "**The rule.**" in text(app)
    assert "**1. " not in text(app)
    app.button("story").click().run()
    assert "claim" not in app.query_params
    assert "**1. Attention is a hypernetwork**" in text(app)


def test_a_filter_closes_the_claim_that_it_leaves_out() -> None:
    app = shown("evidence", claim="fig2b-terms-decodable")
    app.segmented_control(VERDICT_KEY).set_value("differs").run()
    assert "**The rule.**" in text(app)
    app.segmented_control(VERDICT_KEY).set_value("agrees").run()
    assert "**The rule.**" not in text(app)
    assert "claim" not in app.query_params
    app = shown("evidence", claim="fig2b-terms-decodable", words="hyla ahead")
    assert "**The rule.**" not in text(app)
    assert app.query_params["words"] == "hyla ahead"


def test_a_claim_says_all_there_is() -> None:
    name = "causal-sraven-codes-answer"
    app = shown("evidence", claim=name, verdict="differs")
    said, claim = text(app), evidence().claims[name]
    assert "✘ differs" in said
    for part in ("It holds in HYLA and linear attention in every run", "**The rule.**",
                 "Runs<br>**30**"):
        assert part in said
    # To two digits they stay what they are where the runs are measured again.
    assert re.search(r"Ours, above the control<br>\*\*-0\.00\d+ to \+0\.9\d\*\*", said)
    assert claim["source"] in said
    assert app.code[0].value == "latentcode reproduce causal --preset paper"
    assert {button.proto.label for button in app.get("download_button")} >= {
        "classes.csv", "all numbers (JSON)", "causal.png"}
    assert len(app.get("image")) == 1


def test_a_claim_without_a_number_says_what_is_compared() -> None:
    app = shown("evidence", claim="tabA1-logic-hyla-ahead")
    said = text(app)
    assert "Published<br>**no number**" in said
    assert "**What is compared.** r2 on `ood`. Compared between two sets of runs" in said
    assert app.get("table")[0].value["test"].tolist() == ["hyla > softmax", "hyla > linear"]
    assert "—" not in said


@pytest.mark.parametrize(("claim", "said"), [
    ("fig4-eighty-percent-wide", "accuracy on `ood`. It should be above 0.8."),
    ("tabA1-logic-hyla", "100 x r2 on `ood`. Compared with the published number."),
    ("figA1-no-additional-parameters", "number of parameters."),
    ("fig2d-clusters-by-function", "in every run, by 0.4 on average."),
])
def test_every_rule_says_what_it_compares(claim: str, said: str) -> None:
    assert compared(evidence().claims[claim]).endswith(said)
    assert own_number(evidence().claims[claim]).startswith("Ours")


def test_an_address_of_nothing_is_a_message_and_one_of_a_figure_filters() -> None:
    app = shown("evidence", claim="<b>nope", verdict="perhaps", figure="fig99")
    assert len(app.warning) == 3
    assert len(listed(app)) == len(evidence().claims)
    # A figure that was not run shows the smaller models.
    app = shown("evidence", figure="figA8")
    assert set(evidence().table["result"][evidence().table["claim"].isin(listed(app))]) == {"figA8"}
    assert "stored runs: no verdict" in text(app)
    assert app.code[0].value == "latentcode reproduce figA8 --preset small"


def test_without_results_it_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latentcode.app.data.evidence.shipped", lambda: tmp_path)
    app = page_test("evidence").run()
    assert not app.exception
    assert "experiments/results/reproduced" in app.error[0].value
