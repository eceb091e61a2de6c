"""A queue of long trainings that are short: five runs of two grids."""

from __future__ import annotations

import pytest

from latentcode.experiments.paper import long_runs
from latentcode.experiments.paper import queue as queues
from latentcode.experiments.paper.queue import Stage
from latentcode.sweep.grid import Grid, parse_yaml, read_grid

STAGES = (Stage("first", 0, 1), Stage("other"), Stage("first", 1))
GRID = """
base: {preset: smoke, task: logic, training.steps: 40, training.warmup_steps: 5,
       training.milestones: [10, 20, 40], training.checkpoint_every: 15}
axes: {training.seed: [0, 1], kind: [hyla, softmax]}
"""


def small_grid(name: str) -> Grid:
    text = GRID if name == "first" else GRID.replace("[0, 1]", "[7]").replace(", softmax", "")
    return read_grid(parse_yaml(text, name), name)


def use_small_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the long trainings know no other grids."""
    for module in (long_runs, queues):
        monkeypatch.setattr(module, "load_grid", small_grid)
    monkeypatch.setattr(queues, "ALONG", {"first": (10, 40)})
    # A test worker could not take its priority back, nor its session, where it leads one.
    monkeypatch.setattr(long_runs, "give_way", lambda nice: None)
