"""Several runs at once on the CPU: a process each, with one thread each.

Two threads of one small model wait for each other, the more so where a core is shared with other
work; whole models side by side do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from latentcode.config import RunConfig
from latentcode.devices import available_cores
from latentcode.errors import ArtifactError, RunError, check
from latentcode.progress import Bar, Display
from latentcode.runs import Run
from latentcode.runs.metric_file import METRICS, recorded_step
from latentcode.tasks import make_task
from latentcode.training.loop import train
from latentcode.training.processes import check_alone
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
    check_alone("train_side_by_side")
    check(bool(configs), "configs is empty; expected at least one run")
    check(processes is None or processes >= 1, f"processes is {processes}; expected at least 1")
    processes = processes or min(len(configs), available_cores())
    first: Exception | None = None
    # The signal is noted and not raised: an exception can be lost in a callback of the interpreter,
    # and the workers that it stopped would be started again.
    with stop_on_signals() as request:
        with Workers(_train_alone, [{}] * processes, lambda: request.interrupted) as workers:
            for path, config in configs.items():
                workers.submit({path: config})
            with Display() as display:
                progress = [_MemberProgress(display, *one) for one in configs.items()]
                while workers.n_pending:
                    for outcome in workers.wait(POLL_SECONDS):
                        first = first or outcome.error
                    if request.interrupted:
                        workers.stop()
                    for one in progress:
                        one.update()
        if request.interrupted:
            raise request.exception("stopped; the same call goes on where the runs were")
    if first is not None:
        raise first
    return {path: Run.open(path) for path in configs}


def _train_alone(job: Job) -> None:
    torch.set_num_threads(1)
    for path, config in job.items():
        train(config, path, resume=(path / "config.yaml").exists(), progress=False)


class _MemberProgress:
    """The bar of one run with its newest score; without bars, a line for every new one."""

    def __init__(self, display: Display, path: Path, config: RunConfig) -> None:
        self.display, self.path = display, path
        self.headline = make_task(config.task).headline
        self.bar = Bar(display, path.name, config.training.steps)
        self.size_read, self.score = 0, ""

    def update(self) -> None:
        step, score, size = recorded_step(self.path), self.score, self._size()
        # A run is opened only where it has something new to tell.
        if size != self.size_read and (newest := self._newest_score()):
            self.size_read, score = size, newest
        self.bar.update(step, text=score)
        if score != self.score:
            self.score = score
            self.display.line(f"{self.path.name}: step {step:,} of {self.bar.total:,}  {score}")

    def _size(self) -> int:
        try:
            return (self.path / METRICS).stat().st_size
        except OSError:  # not there yet
            return 0

    def _newest_score(self) -> str:
        try:
            metric = Run.open(self.path).newest("ood", self.headline)
        except (RunError, ArtifactError):  # not there yet
            return ""
        return "" if metric is None else f"ood {self.headline} {metric.mean:.3f}"
