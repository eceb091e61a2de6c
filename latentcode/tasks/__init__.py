"""Problems whose constituents are known: fuzzy logic and SRAVEN."""

from __future__ import annotations

from latentcode.codes import Pair
from latentcode.config import LogicConfig, TaskConfig
from latentcode.tasks.base import SPLITS, Batch, Task

__all__ = ["SPLITS", "Batch", "Pair", "Task", "make_task"]


def make_task(config: TaskConfig) -> Task:
    """Return the task that a configuration describes."""
    if isinstance(config, LogicConfig):
        from latentcode.tasks.logic import FuzzyLogic

        return FuzzyLogic(config)
    from latentcode.tasks.sraven import Sraven

    return Sraven(config)
