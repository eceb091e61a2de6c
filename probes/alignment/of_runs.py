"""Do trained runs have the same codes, up to a reordering of heads or a rotation?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.alignment.of_codes import align_codes
from latentcode.probes.alignment.result import AlignmentResult
from latentcode.probes.common.extraction import extract_with_untrained, load_runs
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.tasks import Task, as_task, make_task


@watched("aligning")
def align(
    runs: Sequence[Run | str | Path],
    labels: Labels | None = None,
    *,
    n_train: int = 2_048,
    n_heldout: int = 2_048,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | int | None = None,
    task: TaskConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> AlignmentResult:
    """Do trained runs have the same codes up to a reordering of heads, or a rotation?

    runs      at least two runs, their folders, or names of the zoo
    labels    what the transferred probes decode; default: those that the task names for probing;
              or functions of a batch, as in `decode`
    n_train, n_heldout  instances that probes and matchings are fitted on and scored on
    pairs     default: the paper's pair, the first of the task's
    layers    default: all
    task      what all runs see instances of; default: the first run's own choice for probing, so
              that "held out" means held out of the *first* run. The result says how many of those
              combinations the others were trained on
    settings  of `align_codes`
    progress  called with (comparisons done, in all)

    Runs of one training seed begin with the same weights, of different kinds too, and are left out
    of the result's summary and figures, which says so.

    Raises what `load_run`, `own_labels`, `extract` and `align_codes` raise, `ProbeError` for a
    single run, for no instances and for runs of the same name, and `ConfigError` for runs whose
    tasks differ in more than their split.
    """
    for name, number in (("n_train", n_train), ("n_heldout", n_heldout)):
        check_count(name, number, 1, ProbeError)
    opened = load_runs(runs, least=2)
    for a, b in pairwise(opened):
        ours, theirs = (_family(run.config.task) for run in (a, b))
        check(ours == theirs, f"the tasks of {a.name} and {b.name} differ: {ours} and {theirs}; "
              "expected runs of one task, whose splits may differ")
    own = make_task(opened[0].config.task)
    source = as_task(task or own.probe_config)
    labels = own.probe_labels if labels is None else labels
    parts = ("train", n_train), ("ood", n_heldout)
    further = own_labels(labels, source, parts, seed=seed, device=device)
    codes = [[extract_with_untrained(run, split, values, n=n, pairs=pairs, layers=layers,
                                     task=source, seed=seed, device=device)
              for (split, n), values in zip(parts, further, strict=True)] for run in opened]
    models, untrained = ([(train[i], heldout[i]) for train, heldout in codes] for i in range(2))
    heldout_combinations = _combinations(source, "ood")
    trained_on = {run.name: _combinations(make_task(run.config.task), "train") for run in opened}
    return align_codes(
        models, names_of(labels), untrained=untrained, seed=seed,
        heldout_trained_on={name: (len(known & heldout_combinations), len(heldout_combinations))
                            for name, known in trained_on.items()},
        initial_seeds={run.name: run.config.training.seed for run in opened},
        progress=progress, **settings)


def _combinations(task: Task, split: str) -> set[tuple[int, ...]]:
    return {tuple(row) for row in task.combinations(split).tolist()}


def _family(task: TaskConfig) -> TaskConfig:
    """Return a task configuration without its split."""
    changes: dict[str, Any] = {"split_seed": 0, "held_out": None, "ood_fraction": 0.5}
    return replace(task, **{k: v for k, v in changes.items() if hasattr(task, k)})
