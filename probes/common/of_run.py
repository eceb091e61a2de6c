"""What a result says of the run that it was computed on."""

from __future__ import annotations

from typing import Any

from latentcode.config import config_hash, to_dict
from latentcode.models.config import kind_of
from latentcode.runs import Run
from latentcode.tasks import Task


def meta_of(run: Run, task: Task, step: int | None) -> dict[str, Any]:
    """Return the settings that name a run, the task it was asked and the checkpoint.

    step  None for the last
    """
    return {"run": run.name, "run_id": run.id, "kind": kind_of(run.config.model),
            "config_hash": config_hash(run.config), "task": to_dict(task.config),
            "step": run.checkpoints()[-1] if step is None else step,
            **({} if run.loaded_from is None else {"run_loaded_from": run.loaded_from})}
