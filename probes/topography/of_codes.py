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
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check
from latentcode.figures.style import Figure
from latentcode.probes.common.bootstrap import resample
from latentcode.probes.common.labels import combination_clusters, make_target
from latentcode.probes.common.results import TableResult
from latentcode.probes.common.sources import chosen, origin, sources_of
from latentcode.probes.similarity.of_codes import LEVEL
from latentcode.probes.topography.figures import generalization_figure, topography_figure
from latentcode.probes.topography.generalization import SCOPES
from latentcode.probes.topography.units import InstancePairs, MeanPoints, has_direction

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
        for zero in self.settings.get("zero", ()):
            notes.append(f"The {zero['source']} of {zero['run']}, layer {zero['layer']}, "
                         f"{zero['pair']} is zero in {zero['n']} of {zero['of']} instances, which "
                         "have no cosine and are left out of cosine distances.")
        if len(self.correlation):
            notes += [note for scope, rows in self.correlation.groupby("scope", sort=False)
                      for note in _power(str(scope), rows)]
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


def topography_codes(
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

    NaN where the points of a layer, or the distances of tasks, do not vary. Points that are zero
    have no cosine: they are left out, and the result says how many. Raises `UnknownNameError` for a
    label, layer or pair that does not exist, `ProbeError` for missing controls, fewer than 3
    values, and a distance that lacks a value of its label, is not finite, not symmetric, or not 0
    between a value and itself.
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
    found: list[dict[str, Any]] = []
    zeros: list[dict[str, Any]] = []
    for done, (pair, layer) in enumerate(product(pairs, layers)):
        points = {source.name: source.points(layer, pair) for source in sources}
        zeros += [{"run": run["run"], "source": name, "layer": layer, "pair": pair,
                   "n": int((~x.any(axis=1)).sum()), "of": len(x)}
                  for name, x in points.items() if not x.any(axis=1).all()]
        for label, frames in distances.items():
            if label == COMBINATION:  # of which there are more than a probe has classes
                classes, unit = np.unique(
                    codes.labels[COMBINATION].to_numpy(dtype=object), return_inverse=True)
            else:
                target = make_target(codes, codes, label, pair)
                classes = np.array(target.classes, dtype=object)
            matrices = {name: _ordered(frame, classes.tolist(), label, name)
                        for name, frame in frames.items()}
            order = np.argsort(permuting.random((n_permutations, len(classes))), axis=1)
            for source, metric in product(sources, METRICS):
                x = points[source.name]
                compare: MeanPoints | InstancePairs
                if label == COMBINATION:
                    kept = rows[has_direction(x[rows])] if metric == "cosine" else rows
                    compare = InstancePairs.of(x[kept], unit[kept], clusters[kept], metric, weights)
                else:
                    compare = MeanPoints.of(x, target.train, clusters, metric, weights)
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
        "seed": seed, "codes": [origin(codes)], "zero": zeros}
    columns = TopographyResult.COLUMNS
    return TopographyResult(
        pd.DataFrame(found)[list(columns["table"])], pd.DataFrame(columns=columns["runs"]),
        pd.DataFrame(columns=columns["correlation"]), settings)


def _ordered(
    frame: pd.DataFrame, classes: Sequence[object], label: str, name: str
) -> np.ndarray:
    lacking = [c for c in classes if c not in frame.index or c not in frame.columns]
    check(not lacking, f"distance {name!r} lacks the values {lacking[:5]} of label {label!r}; "
          f"it has: {', '.join(map(str, frame.index[:8]))}", ProbeError)
    check(len(classes) >= 3, f"label {label!r} has {len(classes)} values; expected at least 3, "
          "whose distances can be ordered", ProbeError)
    values = frame.loc[list(classes), list(classes)].to_numpy(dtype=np.float64)
    one_number = np.isfinite(values) & (values == values.T)
    for right, wanted in ((one_number, "the same finite number both ways"),
                          (one_number & ~np.diag(values.diagonal() != 0.0), "0 to itself")):
        if not right.all():
            i, j = np.argwhere(~right)[0].tolist()
            raise ProbeError(
                f"distance {name!r} of label {label!r} is {values[i, j]} from {classes[i]!r} to "
                f"{classes[j]!r} and {values[j, i]} back; expected {wanted}")
    return values


def _power(scope: str, rows: pd.DataFrame) -> list[str]:
    """Return what correlations across runs can show, and how many are small by chance."""
    runs, detectable = f"{rows['n_runs'].max()} runs", rows["detectable"].min()
    notes = []
    if np.isfinite(detectable):
        notes.append(f"Scope {scope}: {runs} find a rank correlation of less than {detectable:.2f} "
                     "less often than four times out of five.")
    able = rows[rows["smallest_p"] < 0.05]
    if len(able) == 0:
        return [*notes, f"Scope {scope}: no p < 0.05 is possible with {runs}."]
    for what, mine in (("the code", able[able["source"] == "code"]),
                       ("its controls", able[able["source"] != "code"])):
        if len(mine):
            notes.append(f"Scope {scope}: of the {len(mine)} correlations of {what}, at most "
                         f"{0.05 * len(mine):.1f} would have p < 0.05 by chance, and "
                         f"{int((mine['p'] < 0.05).sum())} have.")
    return notes
