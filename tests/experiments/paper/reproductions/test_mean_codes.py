"""Which rules a model takes for another, which have similar codes, and how many heads these use."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F
from torch import Tensor, nn

import latentcode as lc
from latentcode.config import SravenConfig
from latentcode.experiments.paper.claims import load_claims
from latentcode.experiments.paper.reproductions import decoded
from latentcode.experiments.paper.reproductions.decoded import (
    LARGEST_OTHER,
    SHUFFLED,
    confusion,
    in_use,
    sum_and_difference,
)
from latentcode.probes.common.results import where

TASK = SravenConfig(n_features=2, n_values=8, permuted=False)


class Adds(nn.Module):
    """Answers every row with the sum of its first two symbols."""

    def forward(self, inputs: Tensor) -> Tensor:
        symbols = inputs.argmax(-1).unflatten(1, (9, TASK.n_features))
        return F.one_hot((symbols[:, 6] + symbols[:, 7]) % TASK.n_values, TASK.n_values).float()


def run_that(model: nn.Module) -> Any:
    return SimpleNamespace(config=SimpleNamespace(task=TASK), load_model=lambda device: model)


def test_confusion_of_a_model_that_always_adds() -> None:
    table = confusion(run_that(Adds()), n=3_000)
    shares = table.pivot(index="rule", columns="as", values="value")
    # a + b is right under a constant row where a = 0, and equals a - b where b is 0 or 4.
    assert shares.loc["constant", "constant"] == pytest.approx(1 / 8, abs=0.05)
    assert shares.loc["constant", "sum"] == pytest.approx(7 / 8, abs=0.05)
    for rule, expected in (("sum", 0.0), ("difference", 3 / 4)):
        if rule in shares.index:
            found = shares.loc[rule, "sum" if rule == "difference" else "difference"]
            assert found == pytest.approx(expected, abs=0.06)
            assert shares.loc[rule, rule] == pytest.approx(1.0 - expected, abs=0.06)
    assert {"sum", "difference"} & set(shares.index), "nothing was tested of the two"
    others = shares.drop(index="distribute-three", errors="ignore")
    if "distribute-three" in others:
        assert others["distribute-three"].isna().all()


def test_sum_and_difference_are_compared_as_in_similarity(
    smoke_run: Callable[[str, str], lc.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out combinations this small have no difference: another rule stands for it."""
    monkeypatch.setattr(decoded, "PAIR_OF_RULES", ("sum", "-1"))
    alike = lc.similarity(smoke_run("sraven", "hyla"), label="rule", n=300, n_bootstrap=100)
    found = sum_and_difference(alike)
    place = {"layer": 1, "features": "code", "centring": "raw"}
    own = where(alike.cosines, **place, row="sum", column="-1").iloc[0]
    mine = where(found, **place)
    assert mine[mine["against"].isna()][["value", "low", "high"]].iloc[0].tolist() == pytest.approx(
        own[["value", "low", "high"]].tolist())
    both = where(alike.contrasts.table, **place, row="-1", column="sum").set_index("against")
    for name, control in (("largest other", LARGEST_OTHER), ("shuffled", SHUFFLED)):
        row = where(mine, against=control).iloc[0]
        assert row[["value", "low", "high"]].tolist() == (
            both.loc[name, ["value", "low", "high"]].tolist())
    claim, = (claim for claim in load_claims() if claim.id == "fig5e-sum-and-difference-alike")
    assert decoded.evidence_of(claim, mine[:0]).empty  # no model knows its rules
    assert set(found["features"]) == {"code", "residual"}
    assert where(found, features="residual", against=SHUFFLED).empty


@pytest.mark.parametrize(("code", "heads"), [
    ([0.0, -3.0, 0.0, 0.0], 1.0),
    ([1.0, -1.0, 1.0, 1.0], 4.0),
    ([2.0, 1.0, 0.0, 0.0], 9.0 / 5.0),
    ([2e-200, 1e-200, 0.0, 0.0], 9.0 / 5.0),
    ([0.0, 0.0, 0.0, 0.0], np.nan),
])
def test_heads_in_use(code: list[float], heads: float) -> None:
    assert in_use(np.array(code)) == pytest.approx(heads, nan_ok=True)
