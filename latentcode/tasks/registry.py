"""Which class is a configuration's task, and what reads it?

A task knows nothing of its readers: the table is where they meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from latentcode.config import TaskConfig
from latentcode.errors import ConfigError
from latentcode.tasks.base import Task
from latentcode.tasks.counterfactuals import Counterfactuals
from latentcode.tasks.distances import Distances
from latentcode.tasks.logic.counterfactuals import LogicCounterfactuals
from latentcode.tasks.logic.distances import logic_distances
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.tasks.sraven.counterfactuals import SravenCounterfactuals
from latentcode.tasks.sraven.distances import sraven_distances
from latentcode.tasks.sraven.task import Sraven


@dataclass(frozen=True)
class Registered:
    """A task and its readers; None where it has none."""

    task: Callable[[Any], Task]
    """Of a configuration, the task."""
    counterfactuals: Callable[[Any], Counterfactuals] | None = None
    """Of a task, its minimal pairs."""
    distances: Callable[[Any, str, str], Distances] | None = None
    """Of a task, a label and a split, how far apart the label's values are."""


REGISTRY: dict[str, Registered] = {
    FuzzyLogic.name: Registered(FuzzyLogic, LogicCounterfactuals, logic_distances),
    Sraven.name: Registered(Sraven, SravenCounterfactuals, sraven_distances),
}
"""By the name of the task."""


def make_task(config: TaskConfig) -> Task:
    """Return the task that a configuration describes.

    `ConfigError` for language, of which there is no text to draw from.
    """
    if config.name not in REGISTRY:
        raise ConfigError(
            f"task {config.name!r} has no instances to draw: its runs are imported, and the text "
            "that they were trained on is not here. Give the run's model token ids of your own")
    return REGISTRY[config.name].task(config)


def as_task(task: Task | TaskConfig) -> Task:
    """Return a task that is given as such or by its configuration."""
    return task if isinstance(task, Task) else make_task(task)


def make_counterfactuals(task: Task) -> Counterfactuals:
    """Return the minimal pairs of a task; `ConfigError` for a task that has none."""
    found = REGISTRY.get(task.name)
    if found is None or found.counterfactuals is None:
        raise ConfigError(f"task {task.name!r} offers no minimal pairs, which interventions need; "
                          f"expected {_those_with('counterfactuals')}")
    return found.counterfactuals(task)


def task_distances(task: Task, label: str, split: str) -> Distances:
    """How far apart are the values of a label? Name of a distance -> [N, N].

    label  a constituent (`rule`, `term_1`, `terms`) or `combination`, those of `split`

    The frames' rows and columns are named as in `Task.labels`. `UnknownNameError` for other
    labels, `ConfigError` for a task that compares nothing.
    """
    found = REGISTRY.get(task.name)
    if found is None or found.distances is None:
        raise ConfigError(f"task {task.name!r} defines no distance between its constituents; "
                          f"expected {_those_with('distances')}")
    return found.distances(task, label, split)


def _those_with(reader: str) -> str:
    return " or ".join(name for name, found in REGISTRY.items() if getattr(found, reader))
