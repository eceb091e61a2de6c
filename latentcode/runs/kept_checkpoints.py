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


def kept_steps(run: Path) -> list[int]:
    """Return the steps of the complete checkpoints in a run's folder, rising."""
    folder = run / CHECKPOINTS
    named = [(re.fullmatch(r"step_(\d{7,})", entry.name), entry)
             for entry in (folder.iterdir() if folder.is_dir() else ())]
    return sorted(int(match[1]) for match, entry in named
                  if match and (entry / STATE).is_file())


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


def delete_old_steps(run: Path, keep: int | None, milestones: Collection[int]) -> None:
    """Delete all but the newest `keep` checkpoints (None: none) and those of milestones."""
    for old in kept_steps(run)[:-keep] if keep is not None else []:
        if old not in milestones:
            delete_step(run, old)
