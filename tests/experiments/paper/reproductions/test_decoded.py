"""Figures that are read from codes: which runs, layers and differences claims are judged by."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from latentcode.experiments.paper.claims import Excess, load_claims
from latentcode.experiments.paper.reproduce import REPRODUCTIONS
from latentcode.experiments.paper.reproduction import Work
from latentcode.experiments.paper.reproductions.decoded import (
    ALL,
    CONTROLS,
    OF_CODE,
    READINGS,
    SHOWS,
    SPLITS,
    against,
    best_layer,
    first_varying,
    of_varying,
    over_runs,
    probe_scores,
    reading,
)
from latentcode.experiments.paper.runs import KnownRuns
from latentcode.runs import Run

NAMES = ("fig2b", "fig2d", "figA2", "fig5ab", "figA6", "figA7", "fig5e", "figA8", "fig5f")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", ["paper", "small", "smoke"])
def test_without_runs_there_is_a_sentence_and_nothing_else(
    name: str, preset: str, tmp_path: Path
) -> None:
    wanted = REPRODUCTIONS[name]
    claims = wanted.claims if preset == "paper" else ()
    found = wanted.measure(Work(preset, KnownRuns({}), tmp_path, claims=claims))
    assert found.summary.startswith("No run of")
    assert not any((found.tables, found.figures, found.evidence))


@pytest.mark.parametrize("name", NAMES)
def test_runs_shown_at_the_published_size_are_those_that_claims_are_about(name: str) -> None:
    wanted = REPRODUCTIONS[name]
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


def table() -> pd.DataFrame:
    rows = [("test", 0, None, 0.4, False), ("test", 1, None, 0.6, True),
            ("test", 2, None, 0.5, True), ("ood", 1, None, 0.2, True), ("ood", 2, None, 0.9, True),
            ("ood", 1, "shuffled", 0.1, True), ("ood", 2, "shuffled", 0.3, True)]
    return pd.DataFrame([
        {"split": split, "layer": layer, "features": "code", "class": ALL, "against": other,
         "value": value, "low": value - 0.1, "high": value + 0.1, "varies": varies}
        for split, layer, other, value, varies in rows])


def test_layer_is_chosen_on_test_and_compared_on_ood() -> None:
    assert (best_layer(table()), best_layer(table(), "ood")) == (1, 2)
    assert against(table(), 1, "shuffled")["value"] == pytest.approx(0.1)


def test_first_layer_that_varies() -> None:
    assert first_varying(table()) == 1


def test_over_runs_gives_the_standard_error_and_leaves_a_single_run_as_it_is() -> None:
    rows = pd.DataFrame({"kind": ["hyla", "hyla", "linear"], "layer": [0, 0, 0],
                         "value": [0.2, 0.4, 0.5], "low": 0.0, "high": 1.0})
    several, single = over_runs(rows, ["kind", "layer"]).to_dict("records")
    assert (several["value"], several["low"]) == (pytest.approx(0.3), pytest.approx(0.2))
    assert (single["low"], single["high"]) == (0.0, 1.0)


def test_a_run_whose_codes_do_not_vary_counts_where_those_of_another_do() -> None:
    rows = pd.DataFrame({"layer": [0, 0, 1, 1], "features": "code", "value": [0.1, 0.1, 0.1, 0.5],
                         "varies": [False, False, False, True]})
    assert of_varying(rows)["value"].tolist() == [0.1, 0.5]
    assert of_varying(rows[:0]).empty


def test_differences_are_those_of_the_scores_on_both_splits(
    smoke_run: Callable[[str, str], Run]
) -> None:
    found = probe_scores(smoke_run("sraven", "hyla"), label="rule", n_train=200, n=150)
    of_all = found[found["class"] == ALL]
    own = of_all[of_all["against"].isna()].set_index(["split", "layer", "features"])["value"]
    assert set(own.index.get_level_values("split")) == set(SPLITS)
    differences = of_all[of_all["features"].eq("code") & of_all["against"].notna()]
    assert set(differences["against"]) == {"shuffled", "untrained", "residual", "chance", "layer 1"}
    for row in differences.itertuples():
        other = (row.split, 1, "code") if row.against == "layer 1" else (
            row.split, row.layer, row.against)
        if row.against != "chance":
            assert row.value == own[row.split, row.layer, "code"] - own[other]
    classes = found[(found["class"] != ALL) & (found["features"] == "code")]
    assert set(classes["metric"]) == {"f1"}
    # The blank response attends to itself in layer 0 whatever the problem is.
    assert found.groupby("layer")["varies"].any().tolist() == [False, True]
    assert (found["n_combinations"] > 1).all()
