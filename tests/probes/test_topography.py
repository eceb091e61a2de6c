"""Is topographic similarity 1 for codes that mirror their tasks, 0 for others, and honest?"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from latentcode.codes import LatentCodes, Pair
from latentcode.errors import ProbeError
from latentcode.probes.generalization import correlate_runs, rank_correlation
from latentcode.probes.topography import TopographyResult, spearman, topographic_similarity

Planted = Callable[..., LatentCodes]
NAMES = [f"c{i:02}" for i in range(12)]
FAST: dict[str, Any] = {"controls": False, "n_permutations": 200, "n_bootstrap": 200}


def codes_at(points: np.ndarray, instances: int, noise: float = 0.0, seed: int = 0) -> LatentCodes:
    """Return codes in which instance i of a combination lies at its point."""
    rng = np.random.default_rng(seed)
    x = np.repeat(points, instances, axis=0)
    x = x + noise * rng.normal(size=x.shape)
    labels = pd.DataFrame({"combination": np.repeat(NAMES[:len(points)], instances)})
    labels["name"] = labels["combination"]
    return LatentCodes(x[:, None, None].astype(np.float32), labels, (Pair("q->q", "itself"),), (0,))


def distances(points: np.ndarray) -> pd.DataFrame:
    d = np.linalg.norm(points[:, None] - points[None], axis=-1)
    names = NAMES[:len(points)]
    return pd.DataFrame(d, index=names, columns=names)


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(12, 5))


@pytest.mark.parametrize("label", ["combination", "name"])
def test_an_isometry_has_topographic_similarity_one(points: np.ndarray, label: str) -> None:
    task = {label: {"exact": distances(points), "monotone": distances(points) ** 3}}
    table = topographic_similarity(codes_at(2 * points, 3), task, **FAST).table
    rows = table[table["metric"] == "euclidean"]
    assert rows["rho"].to_numpy() == pytest.approx(1.0, abs=1e-6)
    assert (rows["low"] > 0.99).all()
    assert rows["p"].to_numpy() == pytest.approx(1 / 201)
    assert set(rows["unit"]) == {"instances" if label == "combination" else "means"}
    assert set(rows["n_pairs"]) == {66 * 9 if label == "combination" else 66}


@pytest.mark.parametrize("label", ["combination", "name"])
def test_random_codes_have_none(points: np.ndarray, label: str) -> None:
    rhos, ps = [], []
    for seed in range(10):
        random = np.random.default_rng(100 + seed).normal(size=points.shape)
        table = topographic_similarity(
            codes_at(random, 3), {label: {"exact": distances(points)}}, **FAST).table
        rhos += table["rho"].tolist()
        ps += table["p"].tolist()
    assert abs(np.mean(rhos)) < 0.1
    assert 0.1 < np.mean(ps) < 0.9


def test_pairs_of_instances_against_slow_code(points: np.ndarray) -> None:
    codes = codes_at(points, 4, noise=1.0)
    x, names = codes.select(layer=0, pair="q->q").astype(float), codes.labels["combination"]
    task = distances(points).round(1)
    pairs = [(i, j) for i, j in combinations(range(len(x)), 2) if names[i] != names[j]]
    slow = stats.spearmanr([np.linalg.norm(x[i] - x[j]) for i, j in pairs],
                           [task.loc[names[i], names[j]] for i, j in pairs]).statistic
    found = topographic_similarity(codes, {"combination": {"task": task}}, **FAST).table
    assert found.set_index("metric").loc["euclidean", "rho"] == pytest.approx(slow, abs=1e-9)


def test_the_null_permutes_combinations_not_instances(points: np.ndarray) -> None:
    """Hundreds of pairs of a few combinations are no evidence: the null must be wide."""
    few = points[:5]
    found = topographic_similarity(
        codes_at(few, 20, noise=0.1), {"combination": {"task": distances(few)}}, **FAST).table
    assert (found["null_high"] > 0.3).all()
    assert (found["p"] >= 1 / 121).all()


def test_constant_codes_say_nothing(points: np.ndarray) -> None:
    task = {"combination": {"task": distances(points)}, "name": {"task": distances(points)}}
    still = np.ones_like(points) + 1e-9 * points
    result = topographic_similarity(codes_at(still, 3), task, **FAST)
    assert result.table[["rho", "low", "high", "p"]].isna().all(axis=None)
    assert "Nothing to correlate" in repr(result)


def test_controls_stand_beside_the_code(planted: Planted, tmp_path: Path) -> None:
    names = [f"t{i}" for i in range(6)]
    line = pd.DataFrame(np.abs(np.subtract.outer(range(6), range(6))), index=names, columns=names)
    result = topographic_similarity(
        planted("ood"), {"terms": {"line": line}}, untrained=planted("ood", strength=0.0),
        layers=[1], pairs=["query->query"], n_permutations=200, n_bootstrap=200)
    assert set(result.table["source"]) == {"code", "residual", "untrained"}
    folder = result.save(tmp_path / "result")
    again = TopographyResult.load(folder)
    np.testing.assert_allclose(again.table["rho"], result.table["rho"])
    assert len(again.correlation) == 0
    with pytest.raises(ProbeError, match="lacks the values"):
        topographic_similarity(planted("ood"), {"terms": {"line": line.iloc[:3, :3]}}, **FAST)


def test_spearman_is_scipys() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (2, 3, 20))
    for a, b, mine in zip(x, y, spearman(x, y), strict=True):
        assert mine == pytest.approx(stats.spearmanr(a, b).statistic)
    assert np.isnan(spearman(np.ones(5), np.arange(5.0)))


# --- Across runs ----------------------------------------------------------------------------------


def runs(x: list[float], y: list[float], kinds: str | None = None) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "y": y, "kind": list(kinds or "a" * len(x))})


def test_correlation_across_runs_is_exact_for_few() -> None:
    found = rank_correlation(runs([1, 2, 3, 4, 5], [1, 2, 3, 5, 4]), "x", "y")
    null = [stats.spearmanr([1, 2, 3, 4, 5], order).statistic
            for order in permutations(range(5))]
    assert found["rho"] == pytest.approx(0.9)
    assert found["p"] == pytest.approx(np.mean(np.abs(null) >= 0.9 - 1e-12))
    assert found["smallest_p"] == pytest.approx(2 / 120)
    assert found["low"] < 0.9 < found["high"]


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


def test_within_kinds_a_difference_between_kinds_does_not_count() -> None:
    table = runs([1, 2, 3, 11, 12, 13], [3, 2, 1, 13, 12, 11], "aaabbb")
    assert rank_correlation(table, "x", "y")["rho"] > 0.5
    within = rank_correlation(table, "x", "y", within="kind")
    assert within["rho"] == pytest.approx(-1.0)
    assert within["smallest_p"] == pytest.approx(2 / 36)
    assert within["p"] == pytest.approx(2 / 36, abs=0.01)


def test_every_place_of_a_table_is_correlated() -> None:
    table = pd.DataFrame({"run": list("abcd") * 2, "layer": [0] * 4 + [1] * 4,
                          "rho": [1, 2, 3, 4, 4, 3, 2, 1]})
    described = pd.DataFrame({"run": list("abcd"), "kind": ["s", "s", "h", "h"],
                              "performance": [0.1, 0.2, 0.3, 0.4]})
    found = correlate_runs(table, described, ["layer"]).set_index(["layer", "scope"])
    assert found.loc[(0, "all runs"), "rho"] == pytest.approx(1.0)
    assert found.loc[(1, "all runs"), "rho"] == pytest.approx(-1.0)
    assert found.loc[(1, "within kind"), "rho"] == pytest.approx(-1.0)
    with pytest.raises(ProbeError, match="no column 'speed'"):
        rank_correlation(table, "rho", "speed")
