"""Are tasks that are close to each other given codes that are close to each other?

Topographic similarity (Brighton and Kirby 2006; with rank correlation Lazaridou et al. 2018), or
representational similarity analysis (Kriegeskorte et al. 2008), is the Spearman correlation
between distances of codes and distances of tasks. Two units are compared:

    means      the mean points of a label's values, such as the eight rules
    instances  single instances of different combinations, for the label `combination`

Several distances of tasks, because the choice matters (`Task.distances`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check
from latentcode.probes.bootstrap import percentile_interval, resample
from latentcode.probes.generalization import SCOPES
from latentcode.probes.labels import combination_clusters, make_target
from latentcode.probes.results import TableResult
from latentcode.probes.similarity import LEVEL, LabelSums
from latentcode.probes.sources import chosen, origin, sources_of, varies
from latentcode.probes.topography_figures import generalization_figure, topography_figure

METRICS = ("cosine", "euclidean")
"""Distances of points."""
COMBINATION = "combination"

Progress = Callable[[int, int], None]
"""Called with (layers and pairs done, in all)."""


@dataclass(frozen=True, repr=False)
class TopographyResult(TableResult):
    """How far the distances of points follow those of tasks.

    table        one row per run, layer, pair, label, source, distance of tasks and metric of
                 points: Spearman's `rho` with its 95 % interval, clustered by combination, `p` and
                 `null_high`, the 95 % quantile when the tasks are permuted
    runs         one row per run: its kind, seeds and `performance` on held-out combinations
    correlation  with four runs or more, Spearman's correlation of rho with performance across
                 them; see `rank_correlation`
    settings     everything else that determines the numbers
    """

    FORMAT = "latentcode.topography"
    COLUMNS: ClassVar = {
        "table": ("run", "kind", "layer", "pair", "label", "unit", "source", "distance", "metric",
                  "rho", "low", "high", "p", "null_high", "n_units", "n_pairs"),
        "runs": ("run", "kind", "seed", "split_seed", "metric", "performance"),
        "correlation": ("layer", "pair", "label", "source", "distance", "metric", "scope",
                        "n_runs", "rho", "low", "high", "p", "smallest_p", "detectable")}
    TEXT: ClassVar = ("label", "run", "kind", "scope")

    table: pd.DataFrame
    runs: pd.DataFrame
    correlation: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def title(self) -> str:
        """One line that says what the summary shows."""
        return "TopographyResult: Spearman correlation of code and task distances, 95 % interval"

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader of these numbers must know, one sentence each."""
        notes = []
        if len(self.settings["controls"]) < 2:
            notes.append("Without controls: residual, untrained.")
        flat = self.table[self.table["rho"].isna()][["source", "layer", "pair"]].drop_duplicates()
        notes += [f"Nothing to correlate: the {source} of layer {layer}, {pair}, or the task "
                  "distance, does not vary." for source, layer, pair
                  in flat.itertuples(index=False)]
        lacking = self.runs.loc[self.runs["performance"].isna(), "run"]
        if len(self.runs) > 1 and len(lacking):
            notes.append(f"Without a metric on held-out combinations: {', '.join(lacking)}.")
        rows = self.correlation
        if len(rows):
            first, tested = rows.iloc[0], int(rows["p"].notna().sum())
            notes.append(
                f"{first['n_runs']} runs find a rank correlation of less than "
                f"{first['detectable']:.2f} less often than four times out of five; of the "
                f"{tested} correlations, {0.05 * tested:.0f} would have p < 0.05 by chance, and "
                f"{int((rows['p'] < 0.05).sum())} have.")
        elif len(self.runs) > 1:
            notes.append(f"{len(self.runs)} runs say nothing about a correlation with performance; "
                         "expected at least 4.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return one row per kind, label, distance, metric and layer: by source, `rho [low, high]
        p` of a single run, else the mean and the range over the runs of a kind."""
        place = ["kind", "label", "distance", "metric", "pair", "layer"]
        rows = []
        for key, block in self.table.groupby(place, sort=False):
            assert isinstance(key, tuple)
            row: dict[str, Any] = dict(zip(place, key, strict=True))
            for source, mine in block.groupby("source", sort=False):
                rho, first = mine["rho"], mine.iloc[0]
                row[str(source)] = (
                    f"{first['rho']:.2f} [{first['low']:.2f}, {first['high']:.2f}] "
                    f"p={first['p']:.3f}" if len(mine) == 1 else
                    f"{rho.mean():.2f} ({rho.min():.2f} to {rho.max():.2f}, n={len(mine)})")
            rows.append(row)
        return pd.DataFrame(rows)

    def figure(self, *, pair: str | None = None, metric: str = "cosine") -> Figure:
        """Return rho per layer: a row per kind, a column per label and distance of tasks."""
        pair = self.settings["pairs"][0] if pair is None else pair
        table = self.table[(self.table["pair"] == pair) & (self.table["metric"] == metric)]
        return topography_figure(table, f"{pair}, {metric} distance of points")

    def generalization_figure(
        self, *, pair: str | None = None, metric: str = "cosine", layer: int | None = None
    ) -> Figure:
        """Return performance against rho, a point per run, of one layer (the last)."""
        pair = self.settings["pairs"][0] if pair is None else pair
        layer = max(self.settings["layers"]) if layer is None else layer
        tables = [table[(table["pair"] == pair) & (table["metric"] == metric)
                        & (table["layer"] == layer)] for table in (self.table, self.correlation)]
        joined = tables[0].merge(self.runs[["run", "performance"]], on="run")
        overall = tables[1][tables[1]["scope"] == SCOPES[0]]
        return generalization_figure(joined, overall, self.runs["metric"].iloc[0],
                                     f"layer {layer}, {pair}, {metric} distance of points")

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        more = {"generalization.png": self.generalization_figure()} if len(self.correlation) else {}
        return super().figures() | more


def topographic_similarity(
    codes: LatentCodes,
    distances: Mapping[str, Mapping[str, pd.DataFrame]],
    *,
    layers: Sequence[int] | None = None,
    pairs: Sequence[str] | None = None,
    untrained: LatentCodes | None = None,
    controls: bool = True,
    n_instances: int = 512,
    n_permutations: int = 1000,
    n_bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> TopographyResult:
    """rho = Spearman(d(z_i, z_j), D(i, j)) over pairs i < j of label means or of instances.

    distances  label -> name of a distance -> D, [N, N] with the label's values as rows and columns
               (`Task.distances`). For `combination`, i and j are instances of different
               combinations; for any other label its values, each the mean over its instances
    layers, pairs  which to compare; all by default
    untrained  codes of the same instances under the model's initial weights
    controls   False leaves out the untrained model and the residual stream and marks the result
    n_instances  of those given, drawn at random, whose pairs are compared
    n_permutations  of the tasks, for p = (1 + #(null >= rho)) / (1 + permutations), one-sided:
               close tasks are expected to have close codes
    n_bootstrap  replicates of the 95 % interval, which resample the combinations. Instances keep
               the ranks that they have in the whole sample

    NaN where the points of a layer, or the distances of tasks, do not vary. Raises
    `UnknownNameError` for a label, layer or pair that does not exist, `ProbeError` for missing
    controls, a distance that lacks a value of its label, and fewer than 3 values.
    """
    for name, value, least in (("n_instances", n_instances, 3), ("n_bootstrap", n_bootstrap, 100),
                               ("n_permutations", n_permutations, 100)):
        check(value >= least, f"{name} is {value!r}; expected at least {least}", ProbeError)
    layers = chosen("layer", layers, codes.layers)
    pairs = chosen("pair", pairs, [p.name for p in codes.pairs])
    check(len(distances) > 0, "distances is empty; expected those of at least one label",
          ProbeError)
    sources = sources_of(codes, untrained, controls)
    clusters = combination_clusters(codes)
    drawing, resampling, permuting = map(
        np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    rows = np.sort(drawing.permutation(len(codes))[:n_instances])
    weights = resample(int(clusters.max()) + 1, n_bootstrap, resampling)
    run = {"run": str(codes.meta.get("run", "?")), "kind": str(codes.meta.get("kind", "?"))}
    found = []
    for done, (pair, layer) in enumerate(product(pairs, layers)):
        for label, frames in distances.items():
            target = make_target(codes, codes, label, pair)
            matrices = {name: _ordered(frame, target.classes, label, name)
                        for name, frame in frames.items()}
            order = np.argsort(permuting.random((n_permutations, len(target.classes))), axis=1)
            for source, metric in product(sources, METRICS):
                x = source.points(layer, pair)
                compare: _Means | _Instances
                if label == COMBINATION:
                    compare = _Instances.of(
                        x[rows], target.train[rows], clusters[rows], metric, weights)
                else:
                    compare = _Means(LabelSums.of(x, target.train, clusters), metric, weights)
                found += [run | {
                    "layer": layer, "pair": pair, "label": label, "unit": compare.UNIT,
                    "source": source.name, "distance": name, "metric": metric,
                    **compare.correlate(matrix, order)}
                    for name, matrix in matrices.items()]
        if progress is not None:
            progress(done + 1, len(pairs) * len(layers))
    settings = {
        "labels": list(distances), "layers": list(layers), "pairs": list(pairs),
        "controls": [s.name for s in sources[1:]], "n_instances": n_instances,
        "n_permutations": n_permutations, "n_bootstrap": n_bootstrap, "level": LEVEL,
        "seed": seed, "codes": origin(codes)}
    columns = TopographyResult.COLUMNS
    return TopographyResult(
        pd.DataFrame(found)[list(columns["table"])], pd.DataFrame(columns=columns["runs"]),
        pd.DataFrame(columns=columns["correlation"]), settings)


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation of x and y [..., n] along the last axis.

    NaN where one of them is constant.
    """
    return _pearson(rankdata(x, axis=-1), rankdata(y, axis=-1))


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


def _ordered(
    frame: pd.DataFrame, classes: Sequence[object], label: str, name: str
) -> np.ndarray:
    lacking = [c for c in classes if c not in frame.index or c not in frame.columns]
    check(not lacking, f"distance {name!r} lacks the values {lacking[:5]} of label {label!r}; "
          f"it has: {', '.join(map(str, frame.index[:8]))}", ProbeError)
    check(len(classes) >= 3, f"label {label!r} has {len(classes)} values; expected at least 3, "
          "whose distances can be ordered", ProbeError)
    return frame.loc[list(classes), list(classes)].to_numpy(dtype=np.float64)


def _result(rho: float, replicates: np.ndarray, null: np.ndarray, n_clusters: int,
            n_units: int, n_pairs: int) -> dict[str, Any]:
    low, high = percentile_interval(replicates, n_clusters, LEVEL)
    if np.isnan(rho):
        p = null_high = np.nan
    else:
        p = (1 + int((null >= rho - 1e-12).sum())) / (1 + len(null))
        null_high = float(np.quantile(null, 0.95))
    return {"rho": rho, "low": float(low), "high": float(high), "p": p, "null_high": null_high,
            "n_units": n_units, "n_pairs": n_pairs}


@dataclass(frozen=True)
class _Means:
    """The mean points of a label's values."""

    UNIT: ClassVar = "means"
    sums: LabelSums
    metric: str
    weights: np.ndarray

    def correlate(self, matrix: np.ndarray, order: np.ndarray) -> dict[str, Any]:
        """Compare with distances of tasks [N, N]; order [permutation, N] permutes them."""
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
            length = np.linalg.norm(means, axis=-1, keepdims=True)
            unit = means / np.where(length > 0, length, np.nan)
            return np.asarray(1.0 - unit @ np.swapaxes(unit, -1, -2))
        square = np.square(means).sum(axis=-1)
        inner = means @ np.swapaxes(means, -1, -2)
        return np.sqrt(np.clip(square[..., None] + square[..., None, :] - 2 * inner, 0.0, None))


@dataclass(frozen=True)
class _Instances:
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
        cls, x: np.ndarray, truth: np.ndarray, clusters: np.ndarray, metric: str,
        weights: np.ndarray,
    ) -> _Instances:
        used, unit = np.unique(truth.argmax(axis=1), return_inverse=True)
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

    def correlate(self, matrix: np.ndarray, order: np.ndarray) -> dict[str, Any]:
        """Compare with distances of tasks [N, N]; order [permutation, N] permutes them."""
        ranks = self._ranks(matrix[np.ix_(self.unit, self.unit)])
        even = np.ones((1, len(self.unit)))
        # Those of the given values that occur here, in the order of a permutation of all.
        kept = np.argsort(order[:, self.unit], axis=1)
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
