"""Which checkpoints does a run keep? The folders of its steps: found, opened, deleted."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from latentcode.errors import ArtifactError, RunError, check
from latentcode.files.storage import TEMPORARY
from latentcode.runs.checkpoints import STATE, Checkpoint
from latentcode.runs.folder import CHECKPOINTS

DAMAGED = "damaged_"
"""What the name of a checkpoint begins with that was found damaged."""


def step_folders(run: Path) -> dict[int, Path]:
    """Return the folders of the checkpoints in a run's folder by step, rising, whole or not."""
    folder = run / CHECKPOINTS
    named = [(re.fullmatch(r"step_(\d{7,})", entry.name), entry)
             for entry in (folder.iterdir() if folder.is_dir() else ())]
    return dict(sorted((int(match[1]), entry) for match, entry in named if match))


def kept_steps(run: Path) -> list[int]:
    """Return the steps of the complete checkpoints in a run's folder, rising."""
    return [step for step, folder in step_folders(run).items() if (folder / STATE).is_file()]


def folder_of_step(run: Path, step: int) -> Path:
    """Return the folder of a step's checkpoint."""
    return run / CHECKPOINTS / f"step_{step:07d}"


def open_step(run: Path, step: int | None, config_hash: str) -> Checkpoint:
    """Return the checkpoint of a step, or the newest; see `Run.load_checkpoint`."""
    steps = kept_steps(run)
    check(bool(steps), f"{run} holds no complete checkpoint yet", RunError)
    step = steps[-1] if step is None else step
    check(step in steps, f"{run} has no checkpoint of step {step}; expected one of: "
          f"{', '.join(map(str, steps))}", RunError)
    return _open_folder(run, step, config_hash)


def problem_of(run: Path, step: int, config_hash: str) -> str | None:
    """What keeps training from going on from the checkpoint of a step? None: it is whole."""
    try:
        _open_folder(run, step, config_hash).check_files()
    except ArtifactError as error:
        return str(error)
    return None


def _open_folder(run: Path, step: int, config_hash: str) -> Checkpoint:
    checkpoint = Checkpoint.open(folder_of_step(run, step))
    check(checkpoint.config_hash == config_hash, f"{checkpoint.path} belongs to a run with "
          f"configuration hash {checkpoint.config_hash}; expected {config_hash}", ArtifactError)
    check(checkpoint.step == step, f"{checkpoint.path} says that it is of step "
          f"{checkpoint.step}; expected {step}", ArtifactError)
    return checkpoint


def delete_step(run: Path, step: int) -> None:
    """Delete the checkpoint of a step."""
    # Renamed first: a kill half-way must not leave something that looks like a checkpoint.
    path = folder_of_step(run, step)
    doomed = path.with_name(f"{TEMPORARY}{path.name}")
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def set_aside(run: Path, step: int) -> Path:
    """Rename a damaged checkpoint, so that it is neither used nor ever deleted; return where."""
    path = folder_of_step(run, step)
    aside = path.with_name(f"{DAMAGED}{path.name}")
    while aside.exists():  # from an earlier time
        aside = aside.with_name(f"{aside.name}_again")
    os.rename(path, aside)
    return aside


def delete_old_steps(run: Path, keep: int | None, milestones: Collection[int]) -> None:
    """Delete all but the newest `keep` checkpoints (None: none) and those of milestones."""
    for old in kept_steps(run)[:-keep] if keep is not None else []:
        if old not in milestones:
            delete_step(run, old)
