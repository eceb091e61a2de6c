"""Is the correlation of RSA 1 for codes that mirror their tasks, 0 for others, and honest?

Is one across runs exact for few of them, and honest about how little they say?
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes.common.labels import groups_of
from latentcode.probes.common.statistics import percentile_interval, resample
from latentcode.probes.topography import (
    TopographyResult,
    correlate_runs,
    rank_correlation,
    topography,
)
from latentcode.tasks.pairs import Pair

Planted = Callable[..., LatentCodes]
NAMES = [f"c{i:02}" for i in range(12)]
FEW: dict[str, Any] = {"n": 100, "layers": [1], "n_permutations": 100, "n_bootstrap": 100}
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
def test_an_isometry_has_correlation_one(points: np.ndarray, label: str) -> None:
    task = {label: {"exact": distances(points), "monotone": distances(points) ** 3}}
    table = topography(codes_at(2 * points, 3), distances=task, **FAST).table
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
        table = topography(
            codes_at(random, 3), distances={label: {"exact": distances(points)}}, **FAST).table
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
    found = topography(codes, distances={"combination": {"task": task}}, **FAST).table
    assert found.set_index("metric").loc["euclidean", "rho"] == pytest.approx(slow, abs=1e-9)


def test_the_null_permutes_combinations_not_instances(points: np.ndarray) -> None:
    """Hundreds of pairs of a few combinations are no evidence: the null must be wide."""
    few = points[:5]
    found = topography(
        codes_at(few, 20, noise=0.1), distances={"combination": {"task": distances(few)}},
        **FAST).table
    assert (found["null_high"] > 0.3).all()
    assert (found["p"] >= 1 / 121).all()


def test_constant_codes_say_nothing(points: np.ndarray) -> None:
    task = {"combination": {"task": distances(points)}, "name": {"task": distances(points)}}
    still = np.ones_like(points) + 1e-9 * points
    result = topography(codes_at(still, 3), distances=task, **FAST)
    assert result.table[["rho", "low", "high", "p"]].isna().all(axis=None)
    assert "Nothing to correlate" in repr(result)


def test_controls_stand_beside_the_code(planted: Planted) -> None:
    names = [f"t{i}" for i in range(6)]
    line = pd.DataFrame(np.abs(np.subtract.outer(range(6), range(6))), index=names, columns=names)
    result = topography(
        lc.subject(planted("ood"), untrained=planted("ood", strength=0.0)),
        distances={"terms": {"line": line}}, layers=[1], pairs=["query->query"],
        n_permutations=200, n_bootstrap=200)
    assert set(result.table["features"]) == {"code", "residual", "untrained"}
    assert result.correlation.empty
    with pytest.raises(ProbeError, match="lacks the values"):
        topography(planted("ood"), distances={"terms": {"line": line.iloc[:3, :3]}}, **FAST)


def drawn_rows(codes: LatentCodes, n_bootstrap: int) -> list[np.ndarray]:
    """Return the instances of each bootstrap replicate of combinations, with repetitions."""
    cluster = groups_of(codes.labels)
    weights = resample(int(cluster.max()) + 1, n_bootstrap, np.random.default_rng(
        np.random.SeedSequence(0).spawn(3)[1]))
    return [np.repeat(np.arange(len(codes)), row[cluster].astype(int)) for row in weights]


def test_intervals_of_means_are_those_of_a_slow_bootstrap(points: np.ndarray) -> None:
    codes = codes_at(points, 3, noise=1.0)
    codes = replace(codes, labels=codes.labels.assign(
        name=[NAMES[i % 6] for i in range(len(codes))]))
    task, names = distances(points).iloc[:6, :6], codes.labels["name"].to_numpy()
    found = topography(codes, distances={"name": {"task": task}}, **FAST).table
    x = codes.select(layer=0, pair="q->q").astype(float)
    rhos = []
    for rows in drawn_rows(codes, 200):
        present = [n for n in NAMES[:6] if n in names[rows]]
        means = {n: x[rows[names[rows] == n]].mean(axis=0) for n in present}
        both = list(combinations(present, 2))
        rhos.append(stats.spearmanr([np.linalg.norm(means[a] - means[b]) for a, b in both],
                                    [task.loc[a, b] for a, b in both]).statistic)
    low, high = percentile_interval(np.array(rhos), 12)
    row = found.set_index("metric").loc["euclidean"]
    assert [row["low"], row["high"]] == pytest.approx([float(low), float(high)])
    assert high - low > 0.1


def test_intervals_of_instances_are_those_of_a_slow_bootstrap(points: np.ndarray) -> None:
    """Ranks stay those of the whole sample; a pair counts as often as both were drawn."""
    codes = codes_at(points, 3, noise=1.0)
    x, names = codes.select(layer=0, pair="q->q").astype(float), codes.labels["combination"]
    task = distances(points)
    found = topography(codes, distances={"combination": {"task": task}}, **FAST).table
    pairs = np.array([p for p in combinations(range(len(x)), 2) if names[p[0]] != names[p[1]]])
    ranks = [stats.rankdata(values) for values in (
        [np.linalg.norm(x[i] - x[j]) for i, j in pairs],
        [task.loc[names[i], names[j]] for i, j in pairs])]
    rhos = []
    for rows in drawn_rows(codes, 200):
        drawn = np.bincount(rows, minlength=len(x))
        counts = drawn[pairs[:, 0]] * drawn[pairs[:, 1]]
        rhos.append(np.corrcoef(*(np.repeat(values, counts) for values in ranks))[0, 1])
    low, high = percentile_interval(np.array(rhos), 12)
    row = found.set_index("metric").loc["euclidean"]
    assert [row["low"], row["high"]] == pytest.approx([float(low), float(high)], abs=1e-6)
    assert high - low > 0.1


def test_zero_codes_are_left_out_of_cosines_and_counted(points: np.ndarray) -> None:
    codes, task = codes_at(points, 4, noise=0.5), distances(points)
    zero = np.zeros(len(codes), dtype=bool)
    zero[[0, 9, 10]] = zero[4:8] = True  # among them all of one combination
    with_zeros = replace(codes, scores=np.where(zero[:, None, None, None], 0.0, codes.scores))
    both = {"combination": {"task": task}, "name": {"task": task}}
    found = topography(with_zeros, distances=both, **FAST)
    rest = topography(codes.subset(~zero), distances=both, **FAST)
    rho, expected = (r.table.query("metric == 'cosine'").set_index("label")["rho"]
                     for r in (found, rest))
    assert rho.to_numpy() == pytest.approx(expected.to_numpy())
    assert found.table[["rho", "low", "high", "p"]].notna().all(axis=None)
    n = found.table.set_index(["label", "metric"])["n_units"]
    assert (n["name", "cosine"], n["name", "euclidean"]) == (11, 12)
    assert any("layer 0, q->q is zero in 7 of 48" in note for note in found.caveats)
    assert not any("Nothing to correlate" in note for note in found.caveats)
    assert not any("zero" in note for note in rest.caveats)


def test_three_values_can_be_ordered_and_two_cannot(points: np.ndarray) -> None:
    def ranked(n: int) -> TopographyResult:
        return topography(codes_at(points[:n], 9),
                          distances={"name": {"task": distances(points[:n])}},
                                **FAST)

    assert ranked(3).table["rho"].notna().all()
    with pytest.raises(ProbeError, match="'name' has 2 values; expected at least 3"):
        ranked(2)


@pytest.mark.parametrize(("place", "value", "message"), [
    ([(0, 1)], np.nan, "'task' of label 'name' is nan from 'c00' to 'c01' and .* back"),
    ([(0, 1), (1, 0)], np.inf, "is inf from 'c00' to 'c01' and inf back; expected the same finite"),
    ([(2, 1)], 9.5, "from 'c01' to 'c02' and 9.5 back; expected the same finite"),
    ([(3, 3)], 0.5, "is 0.5 from 'c03' to 'c03' and 0.5 back; .* 0 from a value to itself")])
def test_what_is_no_distance_is_named(
    points: np.ndarray, place: list[tuple[int, int]], value: float, message: str
) -> None:
    task = distances(points)
    for i, j in place:
        task.iloc[i, j] = value
    with pytest.raises(ProbeError, match=message):
        topography(codes_at(points, 3), distances={"name": {"task": task}}, **FAST)


def test_more_combinations_than_a_probe_has_classes() -> None:
    n = 300
    points = np.random.default_rng(0).normal(size=(n, 3))
    names = [f"f{i:03}" for i in range(n)]
    task = pd.DataFrame(np.linalg.norm(points[:, None] - points[None], axis=-1), names, names)
    codes = LatentCodes(points[::-1, None, None].astype(np.float32),
                        pd.DataFrame({"combination": names[::-1]}), (Pair("q->q", "itself"),), (0,))
    table = topography(
        codes, distances={"combination": {"task": task}}, controls=False, n_instances=100,
        n_permutations=100, n_bootstrap=100).table
    row = table[table["metric"] == "euclidean"].iloc[0]
    assert row["rho"] == pytest.approx(1.0)
    assert row["n_units"] == 100


def test_only_correlations_that_can_be_small_are_counted(points: np.ndarray) -> None:
    result = topography(codes_at(points, 3), distances={"name": {"task": distances(points)}},
                                    **FAST)
    row = {"layer": 0, "pair": "q->q", "label": "name", "distance": "task", "metric": "cosine",
           "n_runs": 6, "rho": 0.5, "low": 0.1, "high": 0.9, "detectable": 0.93}
    rows = [row | {"features": features, "scope": scope, "p": p, "smallest_p": smallest}
            for features, scope, p, smallest in (
                ("code", "all runs", 0.01, 0.003), ("code", "all runs", 0.3, 0.003),
                ("residual", "all runs", 0.2, 0.003), ("untrained", "all runs", np.nan, np.nan),
                ("code", "within kind", 0.06, 0.056), ("residual", "within kind", 0.3, 0.056))]
    rows[-1]["detectable"] = rows[-2]["detectable"] = np.nan
    told = replace(result, correlation=pd.DataFrame(rows)[
        list(TopographyResult.COLUMNS["correlation"])]).caveats
    for note, facts in zip(told[-4:], (
            ("all runs", "6 runs", "0.93"), ("all runs", "2 correlations of the code", "1 have"),
            ("all runs", "1 correlations of its controls", "0 have"),
            ("within kind", "no p < 0.05", "6 runs")), strict=True):
        assert all(fact in note for fact in facts), note


def table_of_runs(x: list[float], y: list[float], kinds: str | None = None) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "y": y, "kind": list(kinds or "a" * len(x))})


def test_few_runs_say_little() -> None:
    three = rank_correlation(table_of_runs([1, 2, 3], [1, 2, 3]), "x", "y")
    assert three["rho"] == 1.0
    assert three["p"] == pytest.approx(1 / 3)
    assert np.isnan(three["low"])
    assert np.isnan(three["detectable"])
    detectable = [
        rank_correlation(table_of_runs(list(range(n)), list(range(n))), "x", "y")["detectable"]
        for n in (5, 9, 30)]
    assert detectable[0] > detectable[1] > detectable[2] > 0.4
    assert np.isnan(rank_correlation(table_of_runs([1, 1, 1], [1, 2, 3]), "x", "y")["rho"])


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


def test_permutations_inside_groups_are_gone_through() -> None:
    table = table_of_runs([1, 3, 2, 10, 30, 40, 20], [5, 6, 7, 1, 2, 4, 3], "aaabbbb")
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
    table = table_of_runs(list(range(12)), list(range(12)), "aaaabbbbcccc")
    found = rank_correlation(table, "x", "y", within="kind", seed=seed)
    assert found["smallest_p"] == pytest.approx(2 / 24**3)
    assert found["p"] >= found["smallest_p"]


def test_the_interval_is_that_of_bonett_and_wright() -> None:
    x, y = [1, 2, 3, 4, 5, 6, 7, 8, 9], [2, 1, 4, 3, 9, 5, 8, 6, 7]
    found = rank_correlation(table_of_runs(x, y), "x", "y")
    rho = stats.spearmanr(x, y).statistic
    half = stats.norm.ppf(0.975) * np.sqrt((1 + rho**2 / 2) / 6)
    assert rho < 0.9
    assert found["low"] == pytest.approx(np.tanh(np.arctanh(rho) - half))
    assert found["high"] == pytest.approx(np.tanh(np.arctanh(rho) + half))


def test_performance_is_the_newest_on_heldout_combinations(
    runs: list[lc.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = "accuracy"
    rows = [(1, "ood", metric, 0.1), (2, "train", metric, 0.9), (2, "ood", metric, 0.3),
            (2, "ood", "loss", 5.0), (2, "train", metric, 0.8)]
    table = pd.DataFrame(rows, columns=["step", "split", "metric", "mean"])
    recorded = runs[0].metrics()
    assert set(table) <= set(recorded)
    last = recorded[(recorded["split"] == "ood") & (recorded["metric"] == metric)]["mean"].iloc[-1]
    result = topography(runs[:2], labels=["rule"], **FEW)
    assert result.runs["metric"].tolist() == [metric] * 2
    assert result.runs["performance"].iloc[0] == last
    origins = result.settings["codes"]
    assert [origin["run_id"] for origin in origins] == [run.id for run in runs[:2]]
    assert all(origin["n"] == 100 and origin["task"] for origin in origins)
    monkeypatch.setattr(lc.Run, "metrics", lambda self: table)
    found = topography(runs[:1], labels=["rule"], **FEW).runs
    assert found["performance"].tolist() == [0.3]
