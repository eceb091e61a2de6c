"""What is kept of the long trainings, and the page that lists it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from latentcode.experiments.paper.queue import QUEUE, Stage, is_complete, members
from latentcode.figures.markdown import markdown_table
from latentcode.files.storage import write_text
from latentcode.runs import Run
from latentcode.tasks import make_task

README = "README.md"
ALONG: Mapping[str, tuple[int, ...]] = {
    "sraven_known": (3_000, 4_500, 9_000), "paper_sraven": (39_062, 78_125, 156_250)}
"""Steps that are published of the first seed; of all others, and of other grids, the last alone."""


def publish(at: Path, out: Path, stages: Sequence[Stage] = QUEUE) -> list[Path]:
    """Copy every finished run that `out` lacks, without the state of training; list all there.

    Returns the folders that are new.
    """
    new = []
    for stage in stages:
        first_seed = members(Stage(stage.grid, 0, 1), at)
        for path, config in members(stage, at).items():
            target = out / stage.grid / path.name
            if is_complete(path, config) and not target.exists():
                kept = ALONG.get(stage.grid) if path in first_seed else None
                target.parent.mkdir(parents=True, exist_ok=True)
                Run.open(path).publish(target, step=kept)
                new.append(target)
    if out.is_dir():
        write_text(out / README, page(out, stages))
    return new


def page(out: Path, stages: Sequence[Stage] = QUEUE) -> str:
    """Return a Markdown page with a row per published run: how good it is at its end, on every
    split, and the constituent that it knows worst."""
    parts = ["# Trained runs\n\nWeights, configuration, metrics over the updates and provenance of "
             "the long trainings (`python -m latentcode.experiments.paper.long_runs`), with "
             "standard errors over instances. `latentcode show experiments/results/runs/GRID/RUN` "
             "tells more of one, `lc.load_run` opens it.\n"]
    for name in dict.fromkeys(stage.grid for stage in stages):
        runs = [Run.open(path) for path in members(Stage(name), out) if path.exists()]
        if not runs:
            continue
        total = len(members(Stage(name), out))
        parts.append(f"\n## {name}\n\n{len(runs)} of {total} runs.\n\n{_rows(runs)}\n")
    return "".join(parts)


def _rows(runs: Sequence[Run]) -> str:
    headline = make_task(runs[0].config.task).headline
    lines = []
    for run in runs:
        newest = run.newest_metrics()
        scores = newest[newest["metric"] == headline]
        known = newest[newest["metric"].str.startswith(("feature_accuracy[", "r2["))
                       & (newest["split"] == "ood")].sort_values("mean")
        lines.append({"run": run.name, "checkpoints": ", ".join(map(str, run.checkpoints())),
                      **{f"{headline}, {row.split}": f"{row.mean:.3f} ± {row.se:.3f}"
                         for row in scores.itertuples()},
                      "known worst, ood": "".join(
                          f"`{row.metric}` {row.mean:.3f}" for row in known.head(1).itertuples())})
    table = pd.DataFrame(lines).fillna("")
    return markdown_table(list(table.columns), table.itertuples(index=False))
