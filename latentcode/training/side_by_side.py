"""Several runs at once on the CPU: a process each, with one thread each.

Two threads of one small model wait for each other, the more so where a core is shared with other
work; whole models side by side do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from latentcode.config import RunConfig
from latentcode.devices import available_cores
from latentcode.errors import ArtifactError, RunError, check
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.training.loop import train
from latentcode.training.signals import stop_on_signals
from latentcode.training.workers import Job, Workers

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
    check(bool(configs), "configs is empty; expected at least one run")
    check(processes is None or processes >= 1, f"processes is {processes}; expected at least 1")
    processes = processes or min(len(configs), available_cores())
    first: Exception | None = None
    # The signal is noted and not raised: an exception can be lost in a callback of the interpreter,
    # and the workers that it stopped would be begun again.
    with stop_on_signals() as request:
        with Workers(_train_alone, [{}] * processes, lambda: request.interrupted) as workers:
            for path, config in configs.items():
                workers.submit({path: config})
            with _bars(configs) as update:
                while workers.n_pending:
                    for outcome in workers.wait(POLL_SECONDS):
                        first = first or outcome.error
                    if request.interrupted:
                        workers.stop()
                    update()
        if request.interrupted:
            raise request.exception("stopped; the same call goes on where the runs were")
    if first is not None:
        raise first
    return {path: Run.open(path) for path in configs}


def _train_alone(job: Job) -> None:
    torch.set_num_threads(1)
    for path, config in job.items():
        train(config, path, resume=(path / "config.yaml").exists(), progress=False)


@contextmanager
def _bars(configs: Mapping[Path, RunConfig]) -> Iterator[Callable[[], None]]:
    """Yield a function that draws a bar per run, or prints a line for every new score."""
    console = Console(stderr=True)
    headlines = {path: make_task(config.task).headline for path, config in configs.items()}
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
               TextColumn("{task.fields[score]}"), TimeRemainingColumn())
    printed: dict[Path, str] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = {path: progress.add_task(path.name, total=config.training.steps, score="")
                for path, config in configs.items()}

        def update() -> None:
            for path in configs:
                step, score = _state(path, headlines[path])
                progress.update(bars[path], completed=step, score=score)
                if not console.is_terminal and score and printed.get(path) != score:
                    printed[path] = score
                    total = configs[path].training.steps
                    console.print(f"{path.name}: step {step:,} of {total:,}  {score}",
                                  highlight=False)

        yield update


def _state(path: Path, headline: str) -> tuple[int, str]:
    """Return the last step that a run has recorded, and its newest score on `ood`."""
    try:
        table = Run.open(path).metrics()
    except (RunError, ArtifactError):  # not there yet
        return 0, ""
    scores = table[(table["metric"] == headline) & (table["split"] == "ood")]
    score = f"ood {headline} {scores['mean'].iloc[-1]:.3f}" if len(scores) else ""
    return (int(table["step"].max()) if len(table) else 0), score
