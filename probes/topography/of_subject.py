"""Representational similarity analysis of models, and whether it goes with generalising."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from latentcode.errors import ProbeError, check
from latentcode.probes.common.contrasts import Contrasts
from latentcode.probes.common.extraction import part_of, subjects_of
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.topography.generalization import correlate_runs
from latentcode.probes.topography.of_codes import COMBINATION, topography_codes
from latentcode.probes.topography.result import TopographyResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import Subject
from latentcode.subjects.of_tasks import RunSubject, TaskSubject
from latentcode.tasks import task_distances

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

LEAST_RUNS = 4
"""Runs below which no correlation across runs is reported: it has no interval."""

Distances = Mapping[str, Mapping[str, pd.DataFrame]]


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
