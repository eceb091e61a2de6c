"""Tests of how many heads codes use, and of the rules that have similar codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import latentcode as lc
from latentcode.experiments.paper.measuring import mean_codes
from latentcode.experiments.paper.measuring.mean_codes import (
    LARGEST_OTHER,
    SHUFFLED,
    in_use,
    sum_and_difference,
)
from latentcode.probes.common.results import where


@pytest.mark.parametrize(("code", "heads"), [
    ([0.0, -3.0, 0.0, 0.0], 1.0),
    ([1.0, -1.0, 1.0, 1.0], 4.0),
    ([2.0, 1.0, 0.0, 0.0], 9.0 / 5.0),
    ([2e-200, 1e-200, 0.0, 0.0], 9.0 / 5.0),
])
def test_heads_in_use(code: list[float], heads: float) -> None:
    assert in_use(np.array(code)) == pytest.approx(heads)


def test_a_code_of_zeros_uses_no_number_of_heads() -> None:
    assert np.isnan(in_use(np.zeros((1, 4)))).all()


def test_sum_and_difference_are_compared_as_in_similarity(
    smoke_run: Callable[[str, str], lc.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out combinations this small have no difference: another rule stands for it."""
    monkeypatch.setattr(mean_codes, "PAIR_OF_RULES", ("sum", "-1"))
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
    assert set(found["features"]) == {"code", "residual"}
    assert where(found, features="residual", against=SHUFFLED).empty
