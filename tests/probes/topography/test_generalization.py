"""Is a correlation across runs exact for few of them, and honest about how little they say?"""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from latentcode.errors import ProbeError
from latentcode.probes.topography.units import correlate_runs, rank_correlation


def runs(x: list[float], y: list[float], kinds: str | None = None) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "y": y, "kind": list(kinds or "a" * len(x))})


def test_few_runs_say_little() -> None:
    three = rank_correlation(runs([1, 2, 3], [1, 2, 3]), "x", "y")
    assert three["rho"] == 1.0
    assert three["p"] == pytest.approx(1 / 3)
    assert np.isnan(three["low"])
    assert np.isnan(three["detectable"])
    detectable = [rank_correlation(runs(list(range(n)), list(range(n))), "x", "y")["detectable"]
                  for n in (5, 9, 30)]
    assert detectable[0] > detectable[1] > detectable[2] > 0.4
    assert np.isnan(rank_correlation(runs([1, 1, 1], [1, 2, 3]), "x", "y")["rho"])


def test_every_place_of_a_table_is_correlated() -> None:
    table = pd.DataFrame({"run": list("abcd") * 2, "layer": [0] * 4 + [1] * 4,
                          "rho": [1, 2, 3, 4, 4, 3, 2, 1]})
    described = pd.DataFrame({"run": list("abcd"), "kind": ["s", "s", "h", "h"],
                              "performance": [0.1, 0.2, 0.3, 0.4]})
    found = correlate_runs(table, described, ["layer"]).set_index(["layer", "scope"])
    assert found.loc[(0, "all runs"), "rho"] == pytest.approx(1.0)
    assert found.loc[(1, "all runs"), "rho"] == pytest.approx(-1.0)
    assert found.loc[(1, "within kind"), "rho"] == pytest.approx(-1.0)
    of_one_kind = correlate_runs(table, described.assign(kind="s"), ["layer"])
    assert set(of_one_kind["scope"]) == {"all runs"}
    with pytest.raises(ProbeError, match="no column 'speed'"):
        rank_correlation(table, "rho", "speed")


def test_permutations_inside_groups_are_gone_through() -> None:
    table = runs([1, 3, 2, 10, 30, 40, 20], [5, 6, 7, 1, 2, 4, 3], "aaabbbb")
    found = rank_correlation(table, "x", "y", within="kind")
    x, y = (np.concatenate([stats.rankdata(v) - np.mean(stats.rankdata(v)) for v in (
        table[c][:3], table[c][3:])]) for c in "xy")
    null = [x @ np.array([*a, *b]) for a, b in product(permutations(y[:3]), permutations(y[3:]))]
    assert len(null) == 144
    assert found["rho"] == pytest.approx(x @ y / np.sqrt(x @ x * (y @ y)))
    assert found["p"] == pytest.approx(np.mean(np.abs(null) >= abs(x @ y) - 1e-9))
    assert found["smallest_p"] == pytest.approx(2 / 144)


@pytest.mark.parametrize("seed", range(5))
def test_random_permutations_are_never_luckier_than_possible(seed: int) -> None:
    """Of 13,824 permutations 10,000 random ones may miss the two best."""
    table = runs(list(range(12)), list(range(12)), "aaaabbbbcccc")
    found = rank_correlation(table, "x", "y", within="kind", seed=seed)
    assert found["smallest_p"] == pytest.approx(2 / 24**3)
    assert found["p"] >= found["smallest_p"]


def test_the_interval_is_that_of_bonett_and_wright() -> None:
    x, y = [1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 1, 4, 3, 9, 5, 8, 6, 7]
    found = rank_correlation(runs(x, y), "x", "y")
    rho = stats.spearmanr(x, y).statistic
    half = stats.norm.ppf(0.975) * np.sqrt((1 + rho**2 / 2) / 6)
    assert rho < 0.9
    assert found["low"] == pytest.approx(np.tanh(np.arctanh(rho) - half))
    assert found["high"] == pytest.approx(np.tanh(np.arctanh(rho) + half))
