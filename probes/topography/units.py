"""Correlations of distances of codes with those of tasks, and of these with performance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, permutations, product
from math import factorial, prod
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy import stats
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata

from latentcode.errors import ProbeError, check
from latentcode.probes.common.bootstrap import LabelSums, percentile_interval
from latentcode.probes.common.contrasts import Resampled
from latentcode.probes.common.features import varies
from latentcode.probes.similarity import cosine_matrix
from latentcode.probes.topography.result import SCOPES

EXACT = 5_040
"""Permutations, those of 7 runs, up to which all are gone through."""
N_PERMUTATIONS = 10_000
"""Random ones that stand for more of them."""


def _rank(values: np.ndarray) -> np.ndarray:
    """Return ranks along the last axis among what is not NaN, which stays NaN."""
    return np.asarray(rankdata(values, axis=-1, nan_policy="omit"))


def _pearson(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the correlation along the last axis of what is not NaN; NaN where that is constant."""
    known = ~np.isnan(x)
    n = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    x, y = (np.where(known, a, 0.0) for a in np.broadcast_arrays(x, y))
    x, y = (np.where(known, a - a.sum(axis=-1, keepdims=True) / n, 0.0) for a in (x, y))
    norm = np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))
    return np.asarray((x * y).sum(axis=-1) / np.where(norm > 0, norm, np.nan))


def has_direction(x: np.ndarray) -> np.ndarray:
    """Return which points [N, d] have a cosine, bool [N]; all where too few of them have."""
    nonzero = x.any(axis=1)
    return np.asarray(nonzero if nonzero.sum() >= 3 else np.ones(len(x), dtype=bool))


@dataclass(frozen=True)
class Correlation:
    """What a comparison of distances gave.

    rho  the correlation, also on resampled combinations
    row  the columns of the table
    """

    rho: Resampled
    row: dict[str, Any]


def _result(rho: float, replicates: np.ndarray, null: np.ndarray, n_clusters: int,
            n_units: int, n_pairs: int) -> Correlation:
    low, high = percentile_interval(replicates, n_clusters)
    if np.isnan(rho):
        p = null_high = np.nan
    else:
        p = (1 + int((null >= rho - 1e-12).sum())) / (1 + len(null))
        null_high = float(np.quantile(null, 0.95))
    return Correlation(Resampled(rho, replicates, n_units, n_clusters), {
        "rho": rho, "low": float(low), "high": float(high), "p": p, "null_high": null_high,
        "n_units": n_units, "n_pairs": n_pairs})


def _those(
    unit: np.ndarray, matrix: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances of the values that occur, in the order of a permutation of all."""
    return matrix[np.ix_(unit, unit)], np.argsort(order[:, unit], axis=1)


@dataclass(frozen=True)
class MeanPoints:
    """The mean points of a label's values.

    unit     int [C], the place of each value among those of the task distance
    weights  float [R, cluster], how often each combination is drawn in each bootstrap replicate
    """

    UNIT: ClassVar = "means"
    sums: LabelSums
    unit: np.ndarray
    metric: str
    weights: np.ndarray

    @classmethod
    def of(
        cls, x: np.ndarray, truth: np.ndarray, clusters: np.ndarray, metric: str,
        weights: np.ndarray,
    ) -> MeanPoints:
        sums = LabelSums.of(x, truth, clusters)
        kept = np.ones(truth.shape[1], dtype=bool)
        if metric == "cosine":
            kept = has_direction(sums.means())
        return cls(LabelSums(sums.sums[:, kept], sums.counts[:, kept]), np.flatnonzero(kept),
                   metric, weights)

    def correlate(self, matrix: np.ndarray, order: np.ndarray) -> Correlation:
        """Compare with distances of tasks [N, N]; order [permutation, N] permutes them."""
        matrix, order = _those(self.unit, matrix, order)
        i, j = self._upper
        task, points = matrix[i, j], self._points
        ranks = squareform(rankdata(task))
        # Each replicate is about the values that occur in it.
        tasks = _rank(np.where(np.isnan(self._replicates), np.nan, task))
        return _result(float(_pearson(points, rankdata(task))),
                       _pearson(self._replicates, tasks),
                       _pearson(points, ranks[order[:, i], order[:, j]]),
                       self.weights.shape[1], len(matrix), len(i))

    @property
    def _upper(self) -> tuple[np.ndarray, np.ndarray]:
        return np.triu_indices(self.sums.sums.shape[1], k=1)

    @cached_property
    def _points(self) -> np.ndarray:
        """Ranks of the distances of all pairs of means; NaN where the means do not vary."""
        means = self.sums.means()
        ranks = np.asarray(rankdata(self._distances(means)[self._upper]))
        return ranks if varies(means) else np.full_like(ranks, np.nan)

    @cached_property
    def _replicates(self) -> np.ndarray:
        """The same of every bootstrap replicate, [R, pair]."""
        distances = self._distances(self.sums.resampled(self.weights))
        return _rank(distances[(slice(None), *self._upper)]) + 0.0 * self._points

    def _distances(self, means: np.ndarray) -> np.ndarray:
        if self.metric == "cosine":
            return 1.0 - cosine_matrix(means)
        square = np.square(means).sum(axis=-1)
        inner = means @ np.swapaxes(means, -1, -2)
        return np.sqrt(np.clip(square[..., None] + square[..., None, :] - 2 * inner, 0.0, None))


@dataclass(frozen=True)
class InstancePairs:
    """Pairs of instances of different combinations, summed up per pair of combinations.

    The correlation of fixed ranks under any weighting of the combinations is a ratio of sums
    over pairs of combinations, so that nothing is ranked again.

    n, x, xx  number of pairs of instances, sum of their ranks and of the squares, each [C, C]
    unit      int [C], the place of each combination that occurs among those of the task distance
    weights   float [R, C], how often each one is drawn in each bootstrap replicate
    varies    whether the points differ from each other at all
    """

    UNIT: ClassVar = "instances"
    n: np.ndarray
    x: np.ndarray
    xx: np.ndarray
    unit: np.ndarray
    weights: np.ndarray
    varies: bool

    @classmethod
    def of(
        cls, x: np.ndarray, unit: np.ndarray, clusters: np.ndarray, metric: str,
        weights: np.ndarray,
    ) -> InstancePairs:
        used, unit = np.unique(unit, return_inverse=True)
        cluster = np.zeros(len(used), dtype=np.int64)
        cluster[unit] = clusters
        i, j = np.triu_indices(len(x), k=1)
        different = unit[i] != unit[j]
        moving = varies(x)
        distance = pdist(x, metric)[different] if moving else np.zeros(int(different.sum()))
        ranks = rankdata(distance)
        a, b = unit[i[different]], unit[j[different]]

        def summed(values: np.ndarray) -> np.ndarray:
            flat = np.bincount(a * len(used) + b, values, minlength=len(used) ** 2)
            square = flat.reshape(len(used), len(used))
            return np.asarray(square + square.T)

        return cls(summed(np.ones(len(ranks))), summed(ranks), summed(ranks**2), used,
                   weights[:, cluster], moving)

    def correlate(self, matrix: np.ndarray, order: np.ndarray) -> Correlation:
        """Compare with distances of tasks [N, N]; order [permutation, N] permutes them."""
        matrix, kept = _those(self.unit, matrix, order)
        ranks = self._ranks(matrix)
        even = np.ones((1, len(self.unit)))
        block = max(1, 2**22 // ranks.size)
        null = np.concatenate([
            self._correlation(ranks[some[:, :, None], some[:, None, :]], even, "c,pcd,d->p")
            for some in np.split(kept, range(block, len(kept), block))])
        return _result(float(self._correlation(ranks, even, "c,cd,d->")),
                       self._correlation(ranks, self.weights, "rc,cd,rd->r"), null,
                       len(self.unit), len(self.unit), int(self.n.sum() / 2))

    def _ranks(self, matrix: np.ndarray) -> np.ndarray:
        """Return the ranks of task distances [C, C] among all pairs of instances."""
        values, place = np.unique(matrix, return_inverse=True)
        count = np.bincount(place.ravel(), (self.n / 2).ravel(), minlength=len(values))
        return np.asarray((np.cumsum(count) - (count - 1) / 2)[place.reshape(matrix.shape)])

    def _correlation(self, y: np.ndarray, w: np.ndarray, sums: str) -> np.ndarray:
        """Return the correlation with ranks y of the tasks, combinations weighted by w.

        sums  which axes of w, y and w are summed, as `np.einsum` writes it
        """
        w = w[0] if sums.startswith("c,") else w
        over = sums.replace("pcd", "cd").replace("->p", "->")

        def of_points(m: np.ndarray) -> np.ndarray:
            return np.asarray(np.einsum(over, w, m, w, optimize=True))

        def of_tasks(m: np.ndarray) -> np.ndarray:
            return np.asarray(np.einsum(sums, w, m, w, optimize=True))

        n = of_points(self.n)
        n = np.where(n > 0, n, np.nan)
        mean_x, mean_y = of_points(self.x) / n, of_tasks(self.n * y) / n
        covariance = of_tasks(self.x * y) / n - mean_x * mean_y
        variance = ((of_points(self.xx) / n - mean_x**2)
                    * (of_tasks(self.n * y * y) / n - mean_y**2))
        # Of ranks up to some hundred thousands: anything below this is rounding.
        defined = (variance > 1e-6) & self.varies
        return np.asarray(covariance / np.sqrt(np.where(defined, variance, np.nan)))


def rank_correlation(
    table: pd.DataFrame, measure: str, performance: str, *, within: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Spearman's rho of two columns of a table with one row per run, and what n runs can say.

    within  a column, such as `kind`: ranks are taken inside each of its groups and their means
            taken away, so that a difference between groups does not count, and permutations stay
            inside the groups

    n_runs      runs with both numbers
    rho         Spearman's correlation; NaN below 3 runs, or where a column is constant
    low, high   95 %: tanh(atanh(rho) -+ 1.96 sqrt((1 + rho^2 / 2) / (n - 3))) (Bonett and Wright
                2000), n less the groups but one; NaN below 4
    p           two-sided, by permutation of the runs (inside their groups): all permutations where
                there are at most 5,040, else 10,000 random ones, and then at least smallest_p
    smallest_p  what p would be if the order agreed perfectly
    detectable  tanh((1.96 + 0.84) sqrt(1.06 / (n - 3))): a true correlation that n runs find at
                the 5 % level four times out of five (variance by Fieller et al. 1957)

    `ProbeError` for a column that does not exist.
    """
    for column in filter(None, (measure, performance, within)):
        check(column in table, f"the table of runs has no column {column!r}; it has: "
              f"{', '.join(map(str, table.columns))}", ProbeError)
    rows = table.dropna(subset=[measure, performance])
    groups = np.zeros(len(rows), dtype=np.int64)
    if within:
        groups = np.asarray(pd.factorize(rows[within])[0], dtype=np.int64)
    x, y = (_ranks(rows[column].to_numpy(dtype=np.float64), groups)
            for column in (measure, performance))
    n = len(rows)
    freedom = n - (len(np.unique(groups)) - 1 if n else 0)
    norm = float(np.sqrt((x @ x) * (y @ y)))
    rho = float(x @ y) / norm if norm > 0 and freedom >= 3 else np.nan
    low = high = p = smallest = detectable = np.nan
    if not np.isnan(rho):
        null = _null(y, groups, seed) @ x / norm
        smallest = max(min(1.0, 2.0 / _permutations(groups)), 1.0 / len(null))
        p = max(float((np.abs(null) >= abs(rho) - 1e-12).mean()), smallest)
    if freedom >= 4:
        z = stats.norm.ppf(0.975)
        if not np.isnan(rho):
            half = z * np.sqrt((1.0 + rho**2 / 2.0) / (freedom - 3))
            middle = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
            low, high = float(np.tanh(middle - half)), float(np.tanh(middle + half))
        detectable = float(np.tanh((z + stats.norm.ppf(0.8)) * np.sqrt(1.06 / (freedom - 3))))
    return {"n_runs": n, "rho": rho, "low": low, "high": high, "p": p, "smallest_p": smallest,
            "detectable": detectable}


def correlate_runs(table: pd.DataFrame, runs: pd.DataFrame, place: list[str]) -> pd.DataFrame:
    """Return the correlation of `rho` with `performance` for every `place` of a table.

    table  one row per run and place, with columns `run` and `rho`
    runs   one row per run: `run`, `kind`, `performance`
    """
    joined = table.drop(columns="kind", errors="ignore").merge(
        runs[["run", "kind", "performance"]], on="run")
    several = len(runs["kind"].unique()) > 1
    rows = []
    for key, block in joined.groupby(place, sort=False):
        for scope in SCOPES if several else SCOPES[:1]:
            found = rank_correlation(block, "rho", "performance",
                                     within="kind" if scope == SCOPES[1] else None)
            rows.append(dict(zip(place, key, strict=True)) | {"scope": scope} | found)
    return pd.DataFrame(rows)


def _ranks(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return ranks inside each group, less their mean."""
    ranks = np.zeros(len(values))
    for group in np.unique(groups):
        mine = groups == group
        ranks[mine] = stats.rankdata(values[mine])
        ranks[mine] -= ranks[mine].mean()
    return ranks


def _permutations(groups: np.ndarray) -> int:
    """Return how many permutations leave every run in its group."""
    return prod(factorial(int(size)) for size in np.bincount(groups))


def _null(y: np.ndarray, groups: np.ndarray, seed: int) -> np.ndarray:
    """Return permutations [permutation, n] of y inside its groups, the given order first."""
    if _permutations(groups) <= EXACT:
        members = [np.flatnonzero(groups == group).tolist() for group in np.unique(groups)]
        orders = np.array([[*chain(*order)] for order in product(*map(permutations, members))])
        rows = np.empty(orders.shape)
        rows[:, orders[0]] = y[orders]
        return rows
    rng = np.random.default_rng(seed)
    drawn = [y]
    for _ in range(N_PERMUTATIONS - 1):
        row = np.empty_like(y)
        for group in np.unique(groups):
            mine = groups == group
            row[mine] = rng.permutation(y[mine])
        drawn.append(row)
    return np.array(drawn)
