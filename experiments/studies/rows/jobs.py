"""Which models are asked, about what, and in which order?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from latentcode.config import LogicConfig
from latentcode.models.config import kind_of
from latentcode.runs import Run
from latentcode.runs.named import load_run

LOGIC = ("logic-hyla", "logic-linear", "logic-softmax")
"""Models of the zoo at the published setting."""
READINGS: tuple[Literal["fixed_context", "fixed_query"], ...] = "fixed_context", "fixed_query"
"""What all instances share: the examples' inputs, as in the paper, or the query's."""
EVERY = ("code", "row", "row.last_row", "codes", "values", "residual", "tokens")
"""Features of the first seeds."""
SMALL = ("code", "row", "residual")
"""Features of seeds beyond the first, and of milestones."""
METRICS = ("accuracy", "balanced_accuracy", "macro_f1")
STEPS = (750, 1_500, 3_000, 4_500, 6_000)
"""Milestones that are read; the newest checkpoint is read in any case."""
FINISHED = 9_000
"""Updates of a finished run of `sraven_known`."""


@dataclass(frozen=True)
class Job:
    """One call of `decode`.

    name   of the folder that its result is kept in
    about  what tells its rows from others: part, run, kind, seed, step, inputs
    how    further arguments
    """

    name: str
    run: Run
    about: Mapping[str, Any]
    how: Mapping[str, Any] = field(default_factory=dict)


def jobs(sraven: Path, checkpoints: Path) -> list[Job]:
    """Return all jobs: first seeds, fuzzy logic, milestones of the first seeds, other seeds.

    sraven       folder of the published runs of `sraven_known`
    checkpoints  folder of the same runs with their milestones
    """
    paths = sorted(path.parent for path in sraven.glob("*/config.yaml"))
    runs = [run for run in map(Run.open, paths) if run.checkpoints()[-1:] == [FINISHED]]
    first = [run for run in runs if run.config.training.seed == 0]
    rest = [run for run in runs if run.config.training.seed != 0]
    milestones = [job for step in STEPS for run in first
                  for job in _milestone(checkpoints / run.path.name, step)]
    whole = {"features": EVERY, "widths": (16, 128)}
    return [*(_sraven(run, whole) for run in first), *_logic(), *milestones,
            *(_sraven(run, {"features": SMALL, "widths": (128,)}) for run in rest)]


def _sraven(run: Run, how: Mapping[str, Any]) -> Job:
    return Job(f"sraven-{_short(run)}", run, {"part": "sraven", **_of(run), "step": FINISHED}, how)


def _milestone(folder: Path, step: int) -> Sequence[Job]:
    if not folder.is_dir():
        return ()
    run = Run.open(folder)
    if step not in run.checkpoints():
        return ()
    return [Job(f"milestone-{_short(run)}-{step:04d}", run,
                {"part": "milestones", **_of(run), "step": step},
                {"features": SMALL, "widths": (128,), "step": step, "controls": False})]


def _logic() -> list[Job]:
    """Return both readings of fuzzy logic: one context for all instances, or one query."""
    found: list[Job] = []
    for name in LOGIC:
        run = load_run(name)
        config = run.config.task
        assert isinstance(config, LogicConfig)
        found += [Job(f"{name}-{inputs}", run, {
            "part": "logic", **_of(run), "step": run.checkpoints()[-1], "inputs": inputs}, {
            "problems": replace(config, inputs=inputs),
            "features": ("code", "row", "values", "residual"), "widths": (128,),
            # With one query for all instances there is one operand.
            "labels": ("term_1", "terms", *(("operand",) if inputs == "fixed_context" else ()),
                       "answer")}) for inputs in READINGS]
        # As the model was trained, and as sources are drawn: is the answer there yet?
        found.append(Job(f"{name}-{config.inputs}", run, {
            "part": "logic", **_of(run), "step": run.checkpoints()[-1], "inputs": config.inputs},
            {"features": ("residual", "tokens"), "widths": (128,),
             "labels": ("operand", "answer")}))
    return found


def _of(run: Run) -> dict[str, Any]:
    return {"run": run.name, "kind": kind_of(run.config.model), "seed": run.config.training.seed}


def _short(run: Run) -> str:
    return f"{kind_of(run.config.model)}-{run.config.training.seed}"
