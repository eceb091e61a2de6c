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
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentcode.arguments import chosen
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.bootstrap import LEVEL, resample
from latentcode.probes.common.contrasts import Contrasts, Resampled, table_of
from latentcode.probes.common.extraction import part_of, subjects_of
from latentcode.probes.common.features import features_of, origin
from latentcode.probes.common.labels import combination_clusters, make_target
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.topography.result import TopographyResult
from latentcode.probes.topography.units import (
    InstancePairs,
    MeanPoints,
    correlate_runs,
    has_direction,
)
from latentcode.progress import Progress, reported, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import Subject
from latentcode.subjects.of_tasks import RunSubject, TaskSubject
from latentcode.tasks import task_distances

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

METRICS = ("cosine", "euclidean")
"""Distances of points."""
COMBINATION = "combination"
LEAST_RUNS = 4
"""Runs below which no correlation across runs is reported: it has no interval."""
Distances = Mapping[str, Mapping[str, pd.DataFrame]]


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


@watched("comparing distances")
def topography(
    models: Sequence[Model] | Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    distances: Distances | None = None,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    controls: bool = True,
    n_instances: int = 512,
    n_permutations: int = 1_000,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> TopographyResult:
    """Correlate distances of codes with distances of tasks, and with generalisation.

    Representational similarity analysis (RSA): rho is the Spearman correlation of two dissimilarity
    structures, distances of codes and distances of tasks.

    The performance of a run is its newest headline metric on held-out combinations. With four
    runs or more its rank correlation with rho is reported, over all runs and, where there are
    several kinds, within them.

    See `latentcode.probes.topography.topography_codes` for the equation.

    Args:
        models: One model or several, see `subject`; or codes.
        problems: See `subject`; default: what each run's task chooses for probing.
        labels: Default: those that have `distances`, or the last that the task names for probing,
            `rule` or `terms`, and `combination`.
        distances: Label -> name of a distance -> D, a DataFrame [N, N] with the label's values as
            rows and columns; default: those of the task. Prompts, codes and labels of one's own
            have none but these.
        split: Which combinations; every run is asked about those of its own split.
        n: Number of problems; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_instances: Problems, drawn at random, whose pairs are compared.
        n_permutations: Permutations of the tasks, for p.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems, permutations and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (layers and pairs done, in all), counted over all models.

    Raises:
        LatentCodeError: What `subject`, `extract` and `topography_codes` raise, `ProbeError` for
            models of one name and for a label without distances.
    """
    seed = checked_seed(seed)
    opened = [of.probing for of in subjects_of(models, problems, device=device)]
    results = []
    for index, of in enumerate(opened):
        known = _distances(of, labels, distances, split)
        number = of.n_of("n", n, 4_096, split)
        further, = own_labels(labels, of, [(split, number)], seed=seed)
        codes, untrained = of.with_untrained(
            split, further, n=number, pairs=pairs, layers=layers, seed=seed, controls=controls)
        found = topography_codes(
            codes, known, untrained=untrained, controls=controls, n_instances=n_instances,
            n_permutations=n_permutations, n_bootstrap=n_bootstrap, seed=seed,
            progress=part_of(progress, index, len(opened)))
        results.append(replace(found, runs=_described(of)))
    table, described, contrasts = (pd.concat(tables, ignore_index=True) for tables in (
        [result.table for result in results], [result.runs for result in results],
        [result.contrasts.table for result in results]))
    correlation = results[0].correlation
    if described["performance"].notna().sum() >= LEAST_RUNS:
        correlation = correlate_runs(
            table, described, ["layer", "pair", "label", "features", "distance", "metric"])
    joined = {name: [row for result in results for row in result.settings[name]]
              for name in ("codes", "zero")}
    return TopographyResult(table, described, correlation, {**results[0].settings, **joined},
                            Contrasts(contrasts))


def _distances(
    of: Subject, labels: Labels | None, given: Distances | None, split: str
) -> Distances:
    """Return the distances between the values of each label that is asked about."""
    names: Sequence[str]
    if labels is not None:
        names = names_of(labels)
    elif given is not None:
        names = tuple(given)
    else:
        names = (*of.probe_labels[-1:], *((COMBINATION,) if isinstance(of, TaskSubject) else ()))
    found = dict(given or {})
    for name in names:
        if name in found:
            continue
        check(isinstance(of, TaskSubject) and not isinstance(labels, Mapping),
              f"label {name!r} has no distances between its values, which a comparison of "
              "distances needs; expected distances={...}, a DataFrame of them. Without any, "
              "knn_purity and similarity say what codes have in common", ProbeError)
        assert isinstance(of, TaskSubject)
        found[name] = task_distances(of.task, name, split)
    check(len(names) > 0, "distances are missing; expected distances={label: {name: DataFrame}}",
          ProbeError)
    return {name: found[name] for name in names}


def _described(of: Subject) -> pd.DataFrame:
    """Return a row that describes a model, and how well it generalises if it is a run."""
    about: dict[str, Any] = {
        "run": of.name, "kind": of.settings.get("kind"), "seed": None, "split_seed": None,
        "metric": None, "performance": float("nan")}
    if isinstance(of, RunSubject):
        run, task = of.run, of.task
        latest = run.latest().reindex(index=[task.headline], columns=["ood"])
        about |= {
            "seed": run.config.training.seed,
            "split_seed": getattr(run.config.task, "split_seed", None),
            "metric": f"{'-' * task.lower_is_better}{task.headline}",
            "performance": float(latest.to_numpy()[0, 0]) * (-1.0 if task.lower_is_better else 1.0)}
    return pd.DataFrame([about])
