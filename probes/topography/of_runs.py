"""Representational similarity analysis of trained runs, and whether it goes with generalising."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import ProbeError, check
from latentcode.probes.common.extraction import extract_with_untrained, load_runs
from latentcode.probes.common.own_labels import Labels, names_of
from latentcode.probes.topography.generalization import correlate_runs
from latentcode.probes.topography.of_codes import COMBINATION, topography_codes
from latentcode.probes.topography.result import TopographyResult
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.tasks import make_task, task_distances

LEAST_RUNS = 4
"""Runs below which no correlation across runs is reported: it has no interval."""


@watched("comparing distances")
def topography(
    runs: Sequence[Run | str | Path] | Run | str | Path,
    labels: Labels | None = None,
    *,
    split: str = "ood",
    n: int = 4_096,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> TopographyResult:
    """Do close tasks have close codes, and do runs in which they do generalise better?

    Representational similarity analysis (RSA): rho is the Spearman correlation of two dissimilarity
    structures, distances of codes and distances of tasks; see `topography_codes`.

    runs      one run or several, their folders, or names of the zoo
    labels    default: the last that the task names for probing, `rule` or `terms`, and
              `combination`. Functions have no distances between their values, which this needs
    split     which combinations; every run is asked about those of its own split
    n         number of instances
    pairs     default: the paper's pair, the first of the task's
    layers    default: all
    settings  of `topography_codes`
    progress  called with (layers and pairs done, in all), counted over all runs

    The performance of a run is its newest headline metric on held-out combinations. With four
    runs or more its rank correlation with rho is reported, over all runs and, where there are
    several kinds, within them.

    Raises what `load_run`, `extract` and `topography_codes` raise, `ProbeError` for runs of one
    name.
    """
    check(not isinstance(labels, Mapping), "labels are functions, whose values have no distances; "
          "expected names, or topography_codes(codes.with_labels(name=values), {name: distances})",
          ProbeError)
    names = None if labels is None else names_of(labels)
    opened = load_runs(runs)
    results = [
        _of_run(run, names, split, {"n": n, "pairs": pairs, "layers": layers, "device": device},
                seed=seed, progress=None if progress is None else _part(progress, i, len(opened)),
                **settings)
        for i, run in enumerate(opened)]
    table, described = (pd.concat(tables, ignore_index=True) for tables in (
        [result.table for result in results], [result.runs for result in results]))
    correlation = results[0].correlation
    if described["performance"].notna().sum() >= LEAST_RUNS:
        correlation = correlate_runs(
            table, described, ["layer", "pair", "label", "features", "distance", "metric"])
    joined = {name: [row for result in results for row in result.settings[name]]
              for name in ("codes", "zero")}
    return TopographyResult(table, described, correlation, {**results[0].settings, **joined})


def _of_run(
    run: Run, labels: Sequence[str] | None, split: str, reading: dict[str, Any], *, seed: int,
    **settings: Any,
) -> TopographyResult:
    """Return the correlations of one run, with a row that describes it."""
    own = make_task(run.config.task)
    task = make_task(own.probe_config)
    names = (own.probe_labels[-1], COMBINATION) if labels is None else labels
    distances = {label: task_distances(task, label, split) for label in names}
    codes, untrained = extract_with_untrained(run, split, task=task, seed=seed, **reading)
    result = topography_codes(codes, distances, untrained=untrained, seed=seed, **settings)
    latest = run.latest().reindex(index=[own.headline], columns=["ood"])
    performance = float(latest.to_numpy()[0, 0]) * (-1.0 if own.lower_is_better else 1.0)
    described = pd.DataFrame([{
        "run": run.name, "kind": codes.meta["kind"], "seed": run.config.training.seed,
        "split_seed": getattr(run.config.task, "split_seed", None),
        "metric": f"{'-' * own.lower_is_better}{own.headline}", "performance": performance}])
    return TopographyResult(result.table, described, result.correlation, result.settings)


def _part(progress: Progress, index: int, parts: int) -> Progress:
    """Return a callback for one of several equal parts of the work."""
    return lambda done, total: progress(index * total + done, parts * total)
