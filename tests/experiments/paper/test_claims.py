"""The claims: what the file holds is what the paper prints and the grids train."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
from judged_claims import CLAIMS, published

import latentcode as lc
from latentcode.config import RunConfig, parse_yaml
from latentcode.experiments.paper.claims import RESULTS, Claim, Published, Welch
from latentcode.models.config import ATTENTION_KINDS
from latentcode.sweep import load_grid

TEXT = files("latentcode.experiments.paper").joinpath("claims.yaml").read_text("utf-8")
ENTRIES: dict[str, Any] = {entry["id"]: entry for entry in parse_yaml(TEXT, "claims.yaml")}


def test_rules_compare_members_of_their_setting_and_numbers_have_a_margin() -> None:
    for claim in CLAIMS.values():
        assert (claim.kind == "number") == (claim.rule.name == "welch") == bool(claim.margin)
        for key in ("higher", "higher_from", "lower", "lower_from"):
            assert set(getattr(claim.rule, key, ())) <= set(claim.setting.grid.points()), claim.id


def numbers(result: str, task: str = "") -> list[Claim]:
    return [claim for claim in CLAIMS.values() if claim.kind == "number"
            and claim.result == result and task in ("", claim.setting.task)]


def error(claim: Claim) -> float:
    value = published(claim).error
    assert value is not None
    return value


def test_every_claim_is_read_and_every_result_has_one() -> None:
    assert list(CLAIMS) == list(ENTRIES)
    assert {claim.result for claim in CLAIMS.values()} == set(RESULTS)
    assert TEXT.count("Committed on 2026-11-22, before the long runs began") == 1
    # What the zoo's models had shown is no prediction.
    known = {f"tabA1-logic-{kind}" for kind in ("softmax", "linear", "hyla")}
    assert {claim.id for claim in numbers("tabA1") if claim.seen} == known


@pytest.mark.parametrize(("task", "value", "errors"), [
    ("logic", 1022.76, 79.9), ("sraven", 827.75, 29.92)])
def test_table_a1_is_whole(task: str, value: float, errors: float) -> None:
    rows = numbers("tabA1", task)
    # Sums of the printed columns: a changed digit shows.
    assert sum(published(row).value for row in rows) == pytest.approx(value)
    assert sum(error(row) for row in rows) == pytest.approx(errors)
    configs = [config for row in rows for config in row.setting.grid.members().values()]
    assert configs == [lc.preset("paper", task, kind) for kind in ATTENTION_KINDS]
    assert {(p.unit, p.error_of, p.n) for p in map(published, rows)} == {
        ("points", "standard error", 3)}


def what_counts(config: RunConfig) -> RunConfig:
    """Without seeds, and without when a run looks at itself and what it keeps."""
    looks = {"eval_every": 1, "checkpoint_every": 1, "milestones": ()}
    return replace(config, task=replace(config.task, split_seed=0),
                   training=replace(config.training, seed=0, **looks))


def test_what_counts_is_what_the_grids_train() -> None:
    trained = [what_counts(config) for grid in (
        "paper_logic", "paper_logic_ablations", "paper_sraven", "paper_sraven_ablations")
        for config in load_grid(grid).members().values()]
    asked = [claim for claim in CLAIMS.values() if claim.result == "tabA1"]
    assert asked
    for claim in asked:
        for name, config in claim.setting.grid.members().items():
            assert what_counts(config) in trained, (claim.id, name)


def test_the_axes_of_the_figures_are_the_tasks() -> None:
    wide = list(CLAIMS["fig4-wider"].setting.grid.members().values())
    assert {(c.model.d_head, c.model.n_layers, c.training.steps) for c in wide} == {
        (4, 4, 156_250)}
    features = CLAIMS["fig5d-harder-with-features"].setting.grid.members().values()
    assert [c.model.n_buckets for c in features] == 3 * [18, 36]
    heads = CLAIMS["fig5c-one-head-hurts"].setting.grid.members().values()
    assert {c.model.n_heads * c.model.d_head for c in heads} == {64}


def test_margins_are_half_of_what_a_column_shows() -> None:
    for task, ahead in (("logic", 8.9), ("sraven", 6.2)):
        value = {kind: published(CLAIMS[f"tabA1-{task}-{kind}"]).value
                 for kind in ("hyla", "softmax")}
        assert 0 <= (value["hyla"] - value["softmax"]) / 2 - ahead < 0.1
        assert {claim.margin for claim in numbers("tabA1", task)} == {ahead}
    assert {claim.margin for claim in numbers("nonlinearity")} == {6.2}
    k4, k8, k16 = (published(claim).value for claim in numbers("tabA2"))
    margins = [claim.margin for claim in numbers("tabA2")]
    assert margins == [pytest.approx((k4 - k8) / 2, abs=6e-4)] + 2 * [
        pytest.approx((k8 - k16) / 2, abs=6e-5)]
    assert margins[0] <= (k4 - k8) / 2
    assert margins[1] <= (k8 - k16) / 2


def test_a_number_may_stand_without_an_error_where_it_is_a_bound() -> None:
    claim = CLAIMS["fig4-eighty-percent-wide"]
    assert published(claim) == Published(80.0, "points", None, None, None)
    assert not isinstance(claim.rule, Welch)
