"""Tests of the figures that are read from codes: without runs, and what they judge by."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from latentcode.experiments.paper.claims import Excess, load_claims
from latentcode.experiments.paper.measuring.logic_codes import OF_CODE, READINGS, SHOWS, reading
from latentcode.experiments.paper.measuring.over_runs import judged
from latentcode.experiments.paper.measuring.probe_scores import CONTROLS
from latentcode.experiments.paper.reproduction import Work, reproduction
from latentcode.experiments.paper.runs import KnownRuns

NAMES = ("fig2b", "fig2d", "figA2", "fig5ab", "figA6", "figA7", "fig5e", "figA8", "fig5f")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", ["paper", "small", "smoke"])
def test_without_runs_there_is_a_sentence_and_nothing_else(
    name: str, preset: str, tmp_path: Path
) -> None:
    wanted = reproduction(name)
    claims = wanted.claims if preset == "paper" else ()
    found = wanted.measure(Work(preset, KnownRuns({}), tmp_path, claims=claims))
    assert found.summary.startswith("No run of")
    assert not any((found.tables, found.figures, found.evidence))


@pytest.mark.parametrize("name", NAMES)
def test_runs_shown_at_the_published_size_are_those_that_claims_are_about(name: str) -> None:
    wanted = reproduction(name)
    for claim in wanted.claims:
        shown = [config for setting in wanted.shows["paper"]
                 for config in setting.grid.members().values()]
        assert all(config in shown for config in claim.setting.grid.members().values())


def test_controls_of_decoding_are_those_of_the_claims() -> None:
    for claim in load_claims():
        if claim.result == "fig2b" or claim.id == "fig5f-rule-decodable":
            assert isinstance(claim.rule, Excess)
            assert set(claim.rule.controls) == set(CONTROLS)


def test_each_claim_of_figure_2_names_its_inputs_and_its_setting() -> None:
    claims = [claim for claim in load_claims() if claim.result in ("fig2b", "fig2d", "figA2")]
    for claim in claims:
        assert reading(claim) == (
            "fixed_query" if claim.id.endswith("-fixed-query") else "fixed_context")
        assert (claim.setting == OF_CODE) == ("-codes-" in claim.id)
        assert claim.setting in SHOWS["paper"]
    assert {(claim.result, reading(claim), claim.setting) for claim in claims} >= set(
        product(("fig2b", "fig2d"), READINGS, (OF_CODE,)))


def test_evidence_leaves_out_what_else_a_row_says() -> None:
    row = {"member": "kind=hyla", "run": "a", "seed": 0, "split_seed": 0, "value": 0.5,
           "kind": "hyla", "layer": 3}
    table = judged({"some-claim": [row]})["some-claim"]
    assert "layer" not in table
    assert table["value"].tolist() == [0.5]
