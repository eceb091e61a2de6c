"""Several runs at once on the CPU: a process each, with one thread each.

Two threads of one small model wait for each other, the more so where a core is shared with other
work; whole models side by side do not.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from threading import Event

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from latentcode.config import RunConfig
from latentcode.devices import available_cores
from latentcode.errors import ArtifactError, RunError
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.training.loop import train

POLL_SECONDS = 1.0
"""How often the runs' folders are looked at for the progress bars."""


def train_side_by_side(
    configs: Mapping[Path, RunConfig], *, processes: int | None = None
) -> dict[Path, Run]:
    """Train every configuration in its own folder, `processes` at a time; resume where one is.

    processes  default: one per core, as far as this process may use them

    Ctrl-C stops all runs, each with a checkpoint. The first error of a run is raised when all
    runs have ended; the others are not stopped by it.
    """
    processes = processes or min(len(configs), available_cores())
    # A forked child would inherit torch's threads in an unknown state.
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, context) as pool:
        stop = manager.Event()
        jobs = {pool.submit(_train_alone, config, path, stop): path
                for path, config in configs.items()}
        try:
            _follow(jobs, configs)
        except BaseException:
            stop.set()  # the pool has handed out jobs that have not begun; these must not begin
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        for job in jobs:
            job.result()
    return {path: Run.open(path) for path in configs}


def _train_alone(config: RunConfig, path: Path, stop: Event) -> None:
    if stop.is_set():
        return
    torch.set_num_threads(1)
    train(config, path, resume=(path / "config.yaml").exists(), progress=False)


def _follow(jobs: Mapping[Future[None], Path], configs: Mapping[Path, RunConfig]) -> None:
    """Draw a bar per run, or print a line now and then, until all have ended."""
    console = Console(stderr=True)
    headlines = {path: make_task(config.task).headline for path, config in configs.items()}
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
               TextColumn("{task.fields[score]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = {path: progress.add_task(path.name, total=config.training.steps, score="")
                for path, config in configs.items()}
        printed: dict[Path, str] = {}
        while not all(job.done() for job in jobs):
            time.sleep(POLL_SECONDS)
            for path in configs:
                step, score = _state(path, headlines[path])
                progress.update(bars[path], completed=step, score=score)
                if not console.is_terminal and score and printed.get(path) != score:
                    printed[path] = score
                    total = configs[path].training.steps
                    console.print(f"{path.name}: step {step:,} of {total:,}  {score}",
                                  highlight=False)


def _state(path: Path, headline: str) -> tuple[int, str]:
    """Return the last step that a run has recorded, and its newest score on `ood`."""
    try:
        table = Run.open(path).metrics()
    except (RunError, ArtifactError):  # not there yet
        return 0, ""
    scores = table[(table["metric"] == headline) & (table["split"] == "ood")]
    score = f"ood {headline} {scores['mean'].iloc[-1]:.3f}" if len(scores) else ""
    return (int(table["step"].max()) if len(table) else 0), score
