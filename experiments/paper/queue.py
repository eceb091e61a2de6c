"""Which models are trained for the paper's claims, in which order, and how far are they?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from latentcode.config import RunConfig, config_hash
from latentcode.experiments.sweep.grid import load_grid
from latentcode.experiments.timing import seconds_per_step
from latentcode.runs import Run
from latentcode.runs.metric_file import recorded_step
from latentcode.runs.run import CONFIG


class Stage(NamedTuple):
    """A grid, and what of it has its turn: its members with seeds `first` to `last`."""

    grid: str
    first: int = 0
    last: int | None = None


QUEUE: tuple[Stage, ...] = (
    Stage("sraven_known"), Stage("paper_logic", 0, 2), Stage("paper_sraven", 0, 1),
    Stage("paper_logic_heldout", 0, 1), Stage("paper_logic_ablations", 0, 1),
    Stage("paper_logic", 2), Stage("paper_sraven", 1), Stage("paper_logic_heldout", 1),
    Stage("paper_logic_ablations", 1), Stage("paper_sraven_ablations"))
"""What is trained, in the order of need. Seeds are counted along the first axis of each grid."""


def members(stage: Stage, at: Path) -> dict[Path, RunConfig]:
    """Return run folder -> configuration of a stage, in order."""
    grid = load_grid(stage.grid)
    configs = {at / stage.grid / name: config for name, config in grid.members().items()}
    of_seed = len(configs) // len(next(iter(grid.axes.values())))
    last = None if stage.last is None else stage.last * of_seed
    return dict(list(configs.items())[stage.first * of_seed:last])


def queue(at: Path, stages: Sequence[Stage] = QUEUE) -> dict[Path, RunConfig]:
    """Return run folder -> configuration of all stages, in order."""
    return {path: config for stage in stages for path, config in members(stage, at).items()}


def is_complete(path: Path, config: RunConfig) -> bool:
    """Whether training has reached its last step, judged by the run's folder alone."""
    return (path / CONFIG).exists() and Run(path, config, {}).is_complete


def is_published(path: Path, config: RunConfig, published: Path | None) -> bool:
    """Whether the run that would be trained at `path` lies finished among the published ones.

    A run of another configuration under its name does not count.
    """
    if published is None:
        return False
    folder = published / path.parent.name / path.name
    if not folder.exists():
        return False
    run = Run.open(folder)
    return run.is_complete and config_hash(run.config) == config_hash(config)


def table(
    at: Path, stages: Sequence[Stage] = QUEUE, published: Path | None = None
) -> pd.DataFrame:
    """Return one row per stage: runs complete, steps done of all, hours that the rest will take.

    Hours are those of one core each, from what the runs of the same grid have taken per step.
    A run that is complete nowhere but among the published ones counts as done.
    """
    rows = []
    for stage in stages:
        runs = members(stage, at)
        steps = sum(config.training.steps for config in runs.values())
        complete = [path for path, config in runs.items() if is_complete(path, config)]
        elsewhere = [path for path, config in runs.items()
                     if path not in complete and is_published(path, config, published)]
        done = sum(config.training.steps if path in (*complete, *elsewhere)
                   else recorded_step(path) for path, config in runs.items())
        paces = [seconds_per_step(path) for path in queue(at, stages)
                 if path.parent.name == stage.grid]
        speeds = [pace for pace in paces if pace is not None]
        left = (steps - done) * sum(speeds) / len(speeds) / 3600 if speeds else float("nan")
        seeds = list(dict.fromkeys(_seeds(path.name) for path in runs))
        rows.append({
            "grid": stage.grid, "seeds": "; ".join(seeds),
            "complete": len(complete),
            **({} if published is None else {"published elsewhere": len(elsewhere)}),
            "runs": len(runs), "steps": done, "of": steps, "core-hours left": round(left, 1)})
    return pd.DataFrame(rows)


def _seeds(member: str) -> str:
    """Return what a member's name says of its seeds, such as `split 1, seed 0`."""
    found = dict(part.split("=") for part in member.split(",") if "seed" in part)
    return ", ".join(f"{name.removesuffix('_seed')} {value}" for name, value in found.items())
