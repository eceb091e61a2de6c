"""Resuming: whether training may go on in the folder of a run, and from which step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from latentcode.config import RunConfig, config_hash, fill_in, flatten, to_dict
from latentcode.config.training import HOW_FIELDS
from latentcode.errors import ArtifactError, RunError, check
from latentcode.files.storage import read_json, write_json
from latentcode.runs.checkpoints import Checkpoint, step_folders
from latentcode.runs.metric_file import METRICS, cut_metrics, cut_torn_line
from latentcode.runs.run import PROVENANCE, TIMING

if TYPE_CHECKING:
    from latentcode.runs.run import Run


def check_resumable(run: Run, config: RunConfig) -> None:
    """Raise `RunError` unless `config` is the run's own and training can go on with it."""
    check(run.imported is None, f"{run.path} was imported, without the state of the "
          "optimiser and the stream of data: training cannot go on from it", RunError)
    check(not _is_published(run), f"{run.path} was "
          "published, without the state of the optimiser and of the random generators: "
          "training cannot go on from it", RunError)
    mine, other = flatten(to_dict(run.config)), flatten(
        to_dict(fill_in(config, run.config)))
    for plain in (mine, other):
        for name in HOW_FIELDS:
            plain.pop(f"training.{name}", None)
    key = "training.steps"
    have, wanted = mine.pop(key), other.pop(key)
    if have != wanted and mine == other:
        # A folder of `wanted` steps whose first ones had another learning rate would be taken for
        # a run that its configuration determines.
        raise RunError(
            f"{key} is {wanted}, but {run.path} was created for {have}: its learning rate falls "
            f"over these {have} steps, so that going on to {wanted} would not be a run of {wanted} "
            f"steps; expected {have} with resume, or a new folder for {wanted}")
    mine[key], other[key] = have, wanted
    different = [f"{key}: {mine.get(key)!r} in the run, {other.get(key)!r} asked for"
                 for key in {**mine, **other} if mine.get(key) != other.get(key)]
    check(not different, f"{run.path} was created with another configuration "
          f"({'; '.join(different)}); resume it with its own", RunError)


def _is_published(run: Run) -> bool:
    """Whether the newest checkpoint that can be read was published, without optimiser."""
    for step in reversed(run.checkpoints()):
        try:
            return run.load_checkpoint(step).is_published
        except ArtifactError:  # told by `newest_whole`
            continue
    return False


def newest_whole(runs: Sequence[Run]) -> tuple[int | None, list[dict[int, str]]]:
    """Return the newest step of which every run has a whole checkpoint, None if none has any.

    Beside it, for each run, its damaged checkpoints after that step: step -> what is wrong.

    `ArtifactError` where there are checkpoints, and all are damaged: nothing is changed then.
    """
    common = set.intersection(*(set(step_folders(run.path)) for run in runs))
    damaged: list[dict[int, str]] = [{} for _ in runs]
    for step in sorted(common, reverse=True):
        whole = True
        for run, of_run in zip(runs, damaged, strict=True):
            try:
                Checkpoint.open(
                    run.checkpoint_path(step), step, config_hash(run.config)).check_files()
            except ArtifactError as error:
                of_run[step], whole = str(error), False
        if whole:
            return step, damaged
    for run, of_run in zip(runs, damaged, strict=True):
        if of_run:
            newest, *others = of_run
            before = ("there is none before it" if not others else
                      f"so are those before it ({', '.join(map(str, others))})")
            raise ArtifactError(
                f"{run.path} cannot be resumed: its newest checkpoint, of step {newest}, is "
                f"damaged ({of_run[newest]}), and {before}; expected a whole one. Nothing was "
                "changed: train in a new folder, or overwrite this one")
    return None, damaged


def go_back_to(run: Run, step: int | None, damaged: Mapping[int, str]) -> list[str]:
    """Forget what there is after `step` (everything for None) and note who resumes.

    A member of an ensemble may have got a checkpoint that others had not when all were killed.

    damaged  checkpoints after `step` that were found damaged: step -> what is wrong. They are noted
             and set aside, never deleted

    Returns a line for each of these, to be shown.
    """
    from latentcode.files.provenance import environment, now

    told = []
    for newer, problem in damaged.items():
        path = run.checkpoint_path(newer)
        aside = path.with_name(f"damaged_{path.name}")
        while aside.exists():  # from an earlier time
            aside = aside.with_name(f"{aside.name}_again")
        os.rename(path, aside)
        told.append(f"the checkpoint of step {newer} is damaged ({problem}); training goes on from "
                    f"step {step or 0}, and the damaged one is kept as {aside}")
    for newer in run.checkpoints():
        if step is None or newer > step:
            run.delete_checkpoint(newer)
    cut_metrics(run.path / METRICS, -1 if step is None else step)
    cut_torn_line(run.path / TIMING)
    note = {"step": step or 0, "time": now(), **environment(run.config.training.device)}
    if damaged:
        note["damaged"] = {str(newer): problem for newer, problem in damaged.items()}
    known = read_json(run.path / PROVENANCE)
    write_json(run.path / PROVENANCE, {**known, "resumed": [*known["resumed"], note]})
    return told
