"""Where a code provably selects the operation, writing it flips every answer; controls none."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hand_built import operation_model
from selector import K, Selector

from latentcode.models.patched.sites import capture
from latentcode.probes.interventions import Patch, intervene_model

N = 200


def rates(*interventions: Patch) -> list[dict[str, float]]:
    result = intervene_model(operation_model(), Selector(), interventions, n=N, n_reference=300,
                             n_bootstrap=100, split="train")
    assert result.settings["n_known"] == N  # the model is never wrong
    by_metric = result.table.pivot(index=["patch", "scope", "site", "alpha", "renormalized"],
                                   columns="metric", values="value")
    return [by_metric.xs((i.value, i.where, i.site), level=(0, 1, 2)).iloc[0].to_dict()
            for i in interventions]


def test_the_code_is_the_rule() -> None:
    pairs = Selector().sample("train", 50, torch.Generator().manual_seed(0))
    _, activations = capture(operation_model(), pairs.bases.inputs, [("code", 0)])
    code = activations["code", 0]  # [B, H, Q, K]
    expected = torch.nn.functional.one_hot(pairs.bases.info["rules"], K).float()
    torch.testing.assert_close(code[:, :, 1:, 0].transpose(1, 2), expected, atol=1e-5, rtol=0)
    assert code[:, :, :, 1:].abs().max() < 1e-5


@pytest.mark.parametrize(("patch", "scope"), [
    *product(["interchange", "resample", "class_mean", "steer"], ["pair", "row"]),
    # Of the others, what everything holds for the other query belongs to another rule.
    ("interchange", "everything"), ("steer", "everything")])
def test_every_answer_flips(patch: str, scope: str) -> None:
    (outcome,) = rates(Patch(patch, scope, (0,)))
    assert (outcome["flip"], outcome["unchanged"], outcome["others"]) == (1.0, 0.0, 1.0)


@pytest.mark.parametrize("patch", ["identity", "control", "class_mean_base"])
def test_the_same_rule_changes_nothing(patch: str) -> None:
    for scope in ("pair", "row", "everything"):
        (outcome,) = rates(Patch(patch, scope, (0,)))
        assert (outcome["flip"], outcome["unchanged"]) == (0.0, 1.0)


@pytest.mark.parametrize("scope", ["pair", "row"])
def test_another_position_changes_nothing_here(scope: str) -> None:
    (outcome,) = rates(Patch("elsewhere", scope, (0,)))
    assert (outcome["flip"], outcome["unchanged"]) == (0.0, 1.0)


def test_random_and_shuffled_codes_switch_at_most_by_chance() -> None:
    bound = 1 / K + 4 * (1 / K * (1 - 1 / K) / N) ** 0.5
    for outcome in rates(Patch("random", "row", (0,)),
                         Patch("class_mean_shuffled", "row", (0,))):
        assert outcome["flip"] <= bound
        assert outcome["unchanged"] <= bound
    # Another instance's source code is never a code of no rule: one of K rules.
    (outcome,) = rates(Patch("shuffled", "pair", (0,)))
    assert outcome["flip"] <= bound


def test_without_its_label_the_code_selects_nothing() -> None:
    erased, zero = rates(Patch("erase", "row", (0,)), Patch("zero_ablation", "row",
                                                                          (0,)))
    bound = 1 / K + 4 * (1 / K * (1 - 1 / K) / N) ** 0.5
    assert erased["unchanged"] <= bound
    assert zero["unchanged"] <= bound


def test_the_rule_is_in_the_query_and_not_in_the_value() -> None:
    residual, value = rates(Patch("interchange", "pair", (0,), site="residual"),
                            Patch("interchange", "pair", (0,), site="value"))
    assert residual["flip"] == 1.0
    assert (value["flip"], value["unchanged"]) == (0.0, 1.0)
    # The symbol is in the value and not in the code: fresh values carry another answer over.
    (same,) = rates(Patch("control", "pair", (0,), site="value"))
    assert same["unchanged"] == 0.0


def test_one_head_is_a_part_of_the_code() -> None:
    everything, one = (intervene_model(
        operation_model(), Selector(), [Patch("interchange", "pair", (0,), heads=heads)],
        n=200)
        for heads in (tuple(range(K)), (3,)))
    assert np.nanmin(everything.matrix("flip").to_numpy()) == 1.0
    matrix = one.matrix("flip")
    assert list(matrix.index) == list(Selector.constituents)
    # With the code of both rules the two answers tie, and the lower symbol wins.
    assert 0.0 < matrix["+3"].mean() < 1.0
    rest = matrix.drop(index="+3", columns="+3").to_numpy()
    assert np.nanmax(rest) == 0.0


def test_result_is_shown(tmp_path: object) -> None:
    result = intervene_model(operation_model(), Selector(), [
        Patch("interchange", "pair", (0,)), Patch("operation+operands", "pair", (0,)),
        Patch("steer", "row", (0,), alpha=2.0)], n=100)
    folder = result.save(f"{tmp_path}/result")
    assert (folder / "figure.png").stat().st_size > 1_000
    assert "steer 2" in repr(result)
    assert "100 of 100 instances count" in result._repr_html_()
    row = result.table.query("patch == 'interchange' and metric == 'flip'")
    assert row[["value", "low", "high"]].to_numpy().tolist() == [[1.0, 1.0, 1.0]]
    cells = result.by_constituent.query("patch == 'interchange'")
    assert int(row["n"].iloc[0]) == int(cells["n"].sum())
