"""From a trained run to what its pairs, rows, codes, values and streams say, in one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.parallel import Parallel, delayed

from latentcode.arguments import as_tuple
from latentcode.codes.instances import instances
from latentcode.codes.rows import WIDEST, Rows, read_rows
from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check_count
from latentcode.probes.common.bootstrap import LEVEL, resample
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.rows.given import TABLE_INSTANCES
from latentcode.probes.rows.labels import N_BINS, asked, default_labels, targets_of
from latentcode.probes.rows.probing import Questions, Reading, answers, known_beside
from latentcode.probes.rows.reduction import fit_reduction
from latentcode.probes.rows.result import RowsResult
from latentcode.progress import Progress, reported, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.seeds import checked_seed
from latentcode.subjects import subject
from latentcode.tasks import Task, as_task, make_task

WIDTHS = 16, 128
"""Dimensions that all features are reduced to: as narrow ones have them, and as wide ones do."""
N_BOOTSTRAP = 1_000
"""Bootstrap replicates."""


@watched("fitting probes")
def decode_rows(
    run: Run | str | Path,
    labels: Labels | None = None,
    *,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | int | None = None,
    features: Sequence[str] | None = None,
    widths: Sequence[int] | int = WIDTHS,
    n_train: int = 4_096,
    n_heldout: int = 4_096,
    task: TaskConfig | None = None,
    step: int | None = None,
    controls: bool = True,
    seed: int = 0,
    device: str = "cpu",
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> RowsResult:
    """Which of operation, operands and answer do a pair, a row, all codes, values, streams say?

    All features x are reduced to the same dimensions, z = (x R / sqrt(512) - mean) V: while they
    are read by a fixed random projection R, where they have more than 512 numbers, then onto the
    first principal axes V of the training instances. Logistic probes on z are fitted on
    `train` combinations and scored on `ood` ones. For the labels of the operation there is also
    the held-out log loss that features gain over the answer, and over answer and operands.

    run      a run, its folder, or a name of the zoo
    labels   default: operation, operands and answer as the task names them (`Task.row_labels`),
             such as rule, operand_1, operand_2 and answer; or functions of a batch
    pairs    whose queries are read; default: the paper's, the first of the task's
    features  of `latentcode.codes.rows`; default: all
    widths   dimensions; features that vary in fewer are read in these alone, merely rotated
    task     what to draw instances from; default: the task's own choice for probing
    step     the checkpoint; default: the newest
    controls  False leaves out the untrained model
    others   as in `decode`

    Raises what `load_run`, `own_labels` and `read_rows` raise, `UnknownNameError` for a label,
    `ProbeError` for no instances or widths.
    """
    seed, run, widths = checked_seed(seed), load_run(run), as_tuple(widths)
    for name, number in (("n_train", n_train), ("n_heldout", n_heldout),
                         ("widths", min(widths, default=0))):
        check_count(name, number, 1, ProbeError)
    drawn_from = as_task(task or make_task(run.config.task).probe_config)
    parts = ("train", n_train), ("ood", n_heldout)
    own = (own_labels(labels, subject(run, drawn_from, device=device), parts, seed=seed)
           if isinstance(labels, Mapping) else [{}, {}])
    pairs = tuple(drawn_from.pairs)[:1] if pairs is None else as_tuple(pairs)
    drawn_from.check_pairs(pairs)
    read = partial(read_rows, run, layers=layers, features=features, task=drawn_from, step=step,
                   seed=seed, device=device)
    models = ("trained", "untrained") if controls else ("trained",)
    table: list[dict[str, Any]] = []
    given: list[dict[str, Any]] = []
    for index, pair in enumerate(pairs):
        readings: list[Reading] = []
        for model in models:
            both = [read(split, n=n, pair=pair, untrained=model == "untrained")
                    for split, n in parts]
            readings += _reduced(model, both[0], both[1], widths)
        questions = _questions(drawn_from, pair, labels, both[0].labels, both[1].labels, own, seed)
        done = Parallel(n_jobs, return_as="generator")(
            delayed(answers)(reading, questions, seed) for reading in readings)
        ahead = None if progress is None else _part(progress, index, len(pairs))
        for found in reported(done, len(readings), ahead):
            table += [{"pair": pair, **row} for row in found[0]]
            given += [{"pair": pair, **row} for row in found[1]]
    columns = RowsResult.COLUMNS
    return RowsResult(
        pd.DataFrame(table)[list(columns["table"])],
        pd.DataFrame(given, columns=list(columns["given"])), {
            "run": run.name, "run_id": run.id, "kind": both[0].meta["kind"],
            "step": run.checkpoints()[-1] if step is None else step,
            "task": both[0].meta["task"], "controls": ["residual", *models[1:], "shuffled"],
            "pairs": list(pairs), "widths": list(widths), "widest": WIDEST, "n_bins": N_BINS,
            "n_train": n_train, "n_heldout": n_heldout, "table_instances": TABLE_INSTANCES,
            "n_bootstrap": N_BOOTSTRAP, "level": LEVEL, "seed": seed})


def _reduced(
    model: str, train: Rows, heldout: Rows, widths: Sequence[int]
) -> Iterator[Reading]:
    """Yield all features of a model, reduced; what was read is given up on the way."""
    for place in list(train.values):
        x, x_heldout = train.values.pop(place), heldout.values.pop(place)
        try:
            reduction = fit_reduction(x, max(widths))
            heldout_z = reduction(x_heldout)
        except ProbeError as error:
            raise ProbeError(f"{place[0]} of layer {place[1]}, {model}: {error}") from None
        z = reduction(x)
        by_dimensions: dict[int, list[int]] = {}
        for width in widths:
            by_dimensions.setdefault(min(width, z.shape[1]), []).append(width)
        for dimensions, same in by_dimensions.items():
            yield Reading({"layer": place[1], "features": place[0], "model": model,
                           "size": train.sizes[place], "dimensions": dimensions}, same,
                          z[:, :dimensions], heldout_z[:, :dimensions])


def _questions(
    task: Task, pair: str, labels: Labels | None, train: pd.DataFrame, heldout: pd.DataFrame,
    own: Sequence[Mapping[str, np.ndarray]], seed: int,
) -> Questions:
    """Return what is asked of all features that were read at a pair."""
    # The training instances are drawn with this seed, so that the counted ones need another.
    counted = task.labels(instances(task, "train", TABLE_INSTANCES, seed=seed + 1).to("cpu"))
    frames = asked(task, task.pairs[pair].token, train, (heldout, counted))
    for frame, values in zip(frames, own, strict=False):
        for name, column in values.items():
            frame[name] = column
    names = default_labels(task, frames[0]) if labels is None else names_of(labels)
    targets = targets_of(names, frames[0], frames[1])
    groups, clusters = (np.asarray(pd.factorize(part["combination"].astype(str))[0])
                        for part in (train, heldout))
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    questions = Questions(targets, [], groups, clusters,
                          resample(int(clusters.max()) + 1, N_BOOTSTRAP, rng))
    return replace(questions, known=known_beside(questions, frames, seed))


def _part(progress: Progress, index: int, n_parts: int) -> Progress:
    """Return the progress of one of several equal parts."""
    return lambda done, total: progress(index * total + done, n_parts * total)
