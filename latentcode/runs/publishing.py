"""What do others need to use the model? A copy of a run from which training cannot go on."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from latentcode.errors import RunError, check
from latentcode.files.locks import exclusive
from latentcode.files.storage import check_free, replace_folder, write_json
from latentcode.runs.checkpoints import publish_checkpoint
from latentcode.runs.folder import CHECKPOINTS, CONFIG, LOCK, PROVENANCE, TEXT, with_name
from latentcode.runs.metric_file import METRICS, cut_metrics

if TYPE_CHECKING:
    from latentcode.runs.run import Run


def publish_run(
    run: Run, out: str | Path, *, step: int | Sequence[int] | None, overwrite: bool,
    weights: bool, text: bool,
) -> Path:
    """Copy a run and return where it is; see `Run.publish`."""
    steps = [step] if step is None or isinstance(step, int) else sorted(step)
    check(bool(steps), "step is empty; expected the step of at least one checkpoint", RunError)
    checkpoints, out = [run.load_checkpoint(one) for one in steps], with_name(out)
    check(not run.path.resolve().is_relative_to(out.resolve()), f"{out} holds the run that "
          f"is published, {run.path}; expected another folder", RunError)
    check_free(out, overwrite=overwrite, marker=PROVENANCE)
    with (exclusive(out / LOCK) if (out / PROVENANCE).exists() else nullcontext(),
          replace_folder(out, overwrite=overwrite, marker=PROVENANCE) as folder):
        for name in (CONFIG, PROVENANCE, METRICS):
            shutil.copyfile(run.path / name, folder / name)
        if run.loaded_from is not None:
            write_json(folder / PROVENANCE, run.provenance)
        if text and (run.path / TEXT).is_dir():
            shutil.copytree(run.path / TEXT, folder / TEXT)
        cut_metrics(folder / METRICS, checkpoints[-1].step)
        for checkpoint in checkpoints:
            target = folder / CHECKPOINTS / checkpoint.path.name
            target.mkdir(parents=True)
            publish_checkpoint(checkpoint.path, target, weights=weights)
    return out
