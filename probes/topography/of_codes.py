"""Representational similarity analysis (RSA): are close tasks given close codes?

The Spearman correlation of two dissimilarity structures, the distances of codes and those of tasks
(Kriegeskorte et al. 2008). Of languages it is called topographic similarity (Brighton and Kirby
2006; with rank correlation Lazaridou et al. 2018). Two units are compared:

    means      the mean points of a label's values, such as the eight rules
    instances  single instances of different combinations, for the label `combination`

Several distances of tasks, because the choice matters (`Task.distances`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from latentcode.arguments import chosen
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.bootstrap import LEVEL, resample
from latentcode.probes.common.contrasts import Resampled, table_of
from latentcode.probes.common.features import features_of, origin
from latentcode.probes.common.labels import combination_clusters, make_target
from latentcode.probes.topography.result import TopographyResult
from latentcode.probes.topography.units import InstancePairs, MeanPoints, has_direction
from latentcode.progress import Progress, reported, watched
from latentcode.seeds import checked_seed

METRICS = ("cosine", "euclidean")
"""Distances of points."""
COMBINATION = "combination"


@watched("comparing distances")
def topography_codes(
    codes: LatentCodes,
    distances: Mapping[str, Mapping[str, pd.DataFrame]],
    *,
    layers: Sequence[int] | int | None = None,
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

    Representational similarity analysis (RSA): do the dissimilarities of codes follow those of
    tasks?

    distances  label -> name of a distance -> D, [N, N] with the label's values as rows and columns
               (`Task.distances`). For `combination`, i and j are instances of different
               combinations; for any other label its values, each the mean over its instances
    layers, pairs  which to compare; all by default
    untrained  codes of the same instances under the model's initial weights
    n_permutations  of the tasks, for p = (1 + #(null >= rho)) / (1 + permutations), one-sided:
               close tasks are expected to have close codes
    n_bootstrap  replicates of the 95 % interval, which resample the combinations. Instances keep
               the ranks that they have in the whole sample

    Other arguments are those of `topography`. NaN where the points of a layer, or the distances of
    tasks, do not vary. Points that are zero have no cosine: they are left out, and the result says
    how many. Raises `UnknownNameError` for a label, layer or pair that does not exist, `ProbeError`
    for missing controls, fewer than 3 values, and a distance that lacks a value of its label, is
    not finite, not symmetric, or not 0 between a value and itself.
    """
    seed = checked_seed(seed)
    for name, value, least in (("n_instances", n_instances, 3), ("n_bootstrap", n_bootstrap, 100),
                               ("n_permutations", n_permutations, 100)):
        check_count(name, value, least, ProbeError)
    layers = chosen("layer", layers, codes.layers)
    pairs = chosen("pair", pairs, [p.name for p in codes.pairs])
    check(len(distances) > 0, "distances is empty; expected those of at least one label",
          ProbeError)
    feature_sets = features_of(codes, untrained, controls)
    drawing, resampling, permuting = map(
        np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    clusters = combination_clusters(codes)
    drawn = _Drawn(clusters, np.sort(drawing.permutation(len(codes))[:n_instances]),
                   resample(int(clusters.max()) + 1, n_bootstrap, resampling))
    run = {"run": str(codes.meta.get("run", "?")), "kind": str(codes.meta.get("kind", "?"))}
    table: list[dict[str, Any]] = []
    contrasts: list[dict[str, Any]] = []
    zeros: list[dict[str, Any]] = []
    for pair, layer in reported(product(pairs, layers), len(pairs) * len(layers), progress):
        points = {features.name: features.points(layer, pair) for features in feature_sets}
        zeros += [{"run": run["run"], "features": name, "layer": layer, "pair": pair,
                   "n": int((~x.any(axis=1)).sum()), "of": len(x)}
                  for name, x in points.items() if not x.any(axis=1).all()]
        for label, frames in distances.items():
            values = _values(codes, label, pair)
            matrices = {name: _ordered(frame, values.names, label, name)
                        for name, frame in frames.items()}
            order = np.argsort(permuting.random((n_permutations, len(values.names))), axis=1)
            place = run | {"layer": layer, "pair": pair, "label": label}
            of_code: dict[tuple[str, str], Resampled] = {}
            for (features, x), metric in product(points.items(), METRICS):
                compared = _compared(x, values, metric, drawn)
                for name, matrix in matrices.items():
                    found = compared.correlate(matrix, order)
                    here = place | {"distance": name, "metric": metric}
                    table.append({**here, "unit": compared.UNIT, "features": features,
                                  **found.row})
                    rho = of_code.setdefault((name, metric), found.rho)  # the code comes first
                    difference = rho - found.rho
                    if features != "code" and np.isfinite(difference.value):
                        contrasts.append({**here, "features": "code", "quantity": "rho",
                                          "against": features, **difference.row()})
    columns = TopographyResult.COLUMNS
    return TopographyResult(
        pd.DataFrame(table)[list(columns["table"])], pd.DataFrame(columns=columns["runs"]),
        pd.DataFrame(columns=columns["correlation"]), {
            "labels": list(distances), "layers": list(layers), "pairs": list(pairs),
            "controls": [s.name for s in feature_sets[1:]], "n_instances": n_instances,
            "n_permutations": n_permutations, "n_bootstrap": n_bootstrap, "level": LEVEL,
            "seed": seed, "codes": [origin(codes)], "zero": zeros},
        table_of(contrasts, columns["contrasts"]))


@dataclass(frozen=True)
class _Drawn:
    """What chance decides, the same for all layers and features.

    clusters  combination of each instance, int [N]
    rows      instances whose pairs are compared
    weights   how often each combination is drawn in each bootstrap replicate
    """

    clusters: np.ndarray
    rows: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class _Values:
    """The values of a label, and which of them instances have.

    truth  bool [N, value], or for `combination`, of which there are more than a probe has
           classes, int [N]
    """

    names: list[object]
    truth: np.ndarray


def _values(codes: LatentCodes, label: str, pair: str) -> _Values:
    if label == COMBINATION:
        names, truth = np.unique(codes.labels[label].to_numpy(dtype=object), return_inverse=True)
        return _Values(names.tolist(), truth)
    target = make_target(codes, codes, label, pair)
    return _Values(list(target.classes), target.train)


def _compared(
    x: np.ndarray, values: _Values, metric: str, drawn: _Drawn
) -> MeanPoints | InstancePairs:
    """Return distances of points x [N, d]: of single instances of combinations, or of means."""
    if values.truth.ndim > 1:
        return MeanPoints.of(x, values.truth, drawn.clusters, metric, drawn.weights)
    rows = drawn.rows[has_direction(x[drawn.rows])] if metric == "cosine" else drawn.rows
    return InstancePairs.of(x[rows], values.truth[rows], drawn.clusters[rows], metric,
                            drawn.weights)


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
