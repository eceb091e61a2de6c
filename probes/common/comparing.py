"""From trained runs to results in one call: similarity, topographic similarity, alignment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.of_tasks import extract
from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check
from latentcode.probes.alignment.of_codes import AlignmentResult, align_codes
from latentcode.probes.decoding.of_run import codes_for_probing
from latentcode.probes.similarity.of_codes import SimilarityResult, similarity_codes
from latentcode.probes.topography.generalization import correlate_runs
from latentcode.probes.topography.of_codes import (
    COMBINATION,
    TopographyResult,
    topography_codes,
)
from latentcode.runs import Run
from latentcode.tasks import make_task, task_distances

Progress = Callable[[int, int], None]
LEAST_RUNS = 4
"""Runs below which no correlation across runs is reported: it has no interval."""


def similarity(
    run: Run,
    label: str | None = None,
    *,
    split: str = "ood",
    n: int = 4_096,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    task: TaskConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> SimilarityResult:
    """Which values of a label have similar codes in a trained run, and how many heads are used?

    label     default: the last that the task names for probing, `rule` or `terms`
    split     which combinations; the held-out ones, as in the paper's Fig. 5E and A8
    task      what to draw from; default: the task's own choice for probing
    settings  of `similarity_codes`

    Raises what `extract` and `similarity_codes` raise.
    """
    own = make_task(run.config.task)
    codes, untrained = _with_untrained(
        run, split, n=n, pairs=pairs, layers=layers,
        task=own.probe_config if task is None else task, seed=seed, device=device)
    return similarity_codes(
        codes, own.probe_labels[-1] if label is None else label, untrained=untrained, seed=seed,
        progress=progress, **settings)


def topography(
    runs: Sequence[Run],
    labels: Sequence[str] | None = None,
    *,
    split: str = "ood",
    n: int = 4_096,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> TopographyResult:
    """Do close tasks have close codes, and do runs in which they do generalise better?

    labels    default: the last that the task names for probing, `rule` or `terms`, and
              `combination`
    split     which combinations; every run is asked about those of its own split
    settings  of `topography_codes`
    progress  called with (steps done, in all), counted over all runs

    The performance of a run is the headline metric on held-out combinations in its newest
    `metrics.jsonl` rows. With four runs or more its rank correlation with rho is reported, over
    all runs and, where there are several kinds, within them.

    Raises what `extract` and `topography_codes` raise, `ProbeError` for runs of one name.
    """
    _check_names(runs)
    results: list[TopographyResult] = []
    facts = []
    for done, run in enumerate(runs):
        task = make_task(run.config.task)
        source = task.probe_config
        names = (task.probe_labels[-1], COMBINATION) if labels is None else tuple(labels)
        distances = {
            label: task_distances(make_task(source), label, split) for label in names}
        codes, untrained = _with_untrained(run, split, n=n, pairs=pairs, layers=layers,
                                           task=source, seed=seed, device=device)
        results.append(topography_codes(
            codes, distances, untrained=untrained, seed=seed,
            progress=None if progress is None else _part(progress, done, len(runs)), **settings))
        facts.append({"run": run.name, "kind": codes.meta["kind"],
                      "seed": run.config.training.seed,
                      "split_seed": getattr(run.config.task, "split_seed", None),
                      "metric": task.headline, "performance": _performance(run, task.headline)})
    table, described = (pd.concat([result.table for result in results], ignore_index=True),
                        pd.DataFrame(facts))
    correlation = results[0].correlation
    if described["performance"].notna().sum() >= LEAST_RUNS:
        place = ["layer", "pair", "label", "source", "distance", "metric"]
        correlation = correlate_runs(table, described, place)
    joined = {name: [row for result in results for row in result.settings[name]]
              for name in ("codes", "zero")}
    return TopographyResult(table, described, correlation, {**results[0].settings, **joined})


def align(
    runs: Sequence[Run],
    labels: Sequence[str] | None = None,
    *,
    n_train: int = 2_048,
    n_heldout: int = 2_048,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    task: TaskConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> AlignmentResult:
    """Do trained runs have the same codes up to a reordering of heads, or a rotation?

    labels    what the transferred probes decode; default: those that the task names for probing
    task      what all runs see instances of; default: the first run's own choice for probing, so
              that "held out" means held out of the *first* run. The result says how many of those
              combinations the others were trained on
    settings  of `align`

    Runs of one training seed begin with the same weights, of different kinds too, and are left out
    of the result's summary and figures, which says so.

    Raises what `extract` and `align` raise, `ProbeError` for runs of the same name and
    `ConfigError` for runs whose tasks differ in more than their split.
    """
    _check_names(runs)
    for a, b in pairwise(runs):
        ours, theirs = (_family(run.config.task) for run in (a, b))
        check(ours == theirs, f"the tasks of {a.name} and {b.name} differ: {ours} and {theirs}; "
              "expected runs of one task, whose splits may differ")
    own = make_task(runs[0].config.task)
    source = own.probe_config if task is None else task
    models, untrained = (
        [codes_for_probing(run, pairs=pairs, layers=layers, n_train=n_train, n_heldout=n_heldout,
                           task=source, seed=seed, device=device, untrained=initial)
         for run in runs] for initial in (False, True))
    heldout = {tuple(row) for row in make_task(source).combinations("ood").tolist()}
    trained = {run.name: {tuple(row) for row in make_task(run.config.task).combinations(
        "train").tolist()} for run in runs}
    return align_codes(
        models, own.probe_labels if labels is None else labels, untrained=untrained, seed=seed,
        heldout_trained_on={name: (len(known & heldout), len(heldout))
                            for name, known in trained.items()},
        initial_seeds={run.name: run.config.training.seed for run in runs},
        progress=progress, **settings)


def _with_untrained(
    run: Run, split: str, **reading: Any
) -> tuple[LatentCodes, LatentCodes]:
    """Return a run's codes with residual streams, and those of its initial weights."""
    return (extract(run, split, residuals=True, **reading),
            extract(run, split, untrained=True, **reading))


def _check_names(runs: Sequence[Run]) -> None:
    names = [run.name for run in runs]
    check(len(runs) > 0, "there are no runs; expected at least one", ProbeError)
    check(len(set(names)) == len(names), f"the runs are called {', '.join(names)}; expected "
          "different names, by which results tell them apart", ProbeError)


def _family(task: TaskConfig) -> TaskConfig:
    """Return a task configuration without its split."""
    changes: dict[str, Any] = {"split_seed": 0, "held_out": None, "ood_fraction": 0.5}
    return replace(task, **{k: v for k, v in changes.items() if hasattr(task, k)})


def _performance(run: Run, metric: str) -> float:
    """Return the newest mean of a metric on held-out combinations, NaN without one."""
    table = run.metrics()
    rows = table[(table["split"] == "ood") & (table["metric"] == metric)] if len(table) else table
    return float(rows["mean"].iloc[-1]) if len(rows) else float(np.nan)


def _part(progress: Progress, index: int, parts: int) -> Progress:
    """Return a callback for one of several equal parts of the work."""
    return lambda done, total: progress(index * total + done, parts * total)
