"""How far is a sweep? One bar over the whole grid on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType

import rich.progress
from rich.console import Console

from latentcode.files.storage import parse_json
from latentcode.progress import LINE_EVERY
from latentcode.runs.run import METRICS

TAIL = 1_000
"""Bytes at the end of a metrics file that hold its last whole line."""


def recorded_step(path: Path) -> int:
    """Return the step of the newest metrics of a run folder, 0 before there are some."""
    try:
        with (path / METRICS).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")
        return int(parse_json(lines[-2].decode())["step"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


class SweepProgress:
    """Shows members complete, steps done of all and the remaining time.

    steps  run folder -> number of updates that it will have
    """

    def __init__(self, steps: Mapping[Path, int], console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.steps = steps
        self.total = sum(steps.values())
        self.complete: set[Path] = set()
        self.start = self.done = 0
        self.began = self.last = time.monotonic()
        self.bar: rich.progress.Progress | None = None
        if self.console.is_terminal:
            self.bar = rich.progress.Progress(
                rich.progress.TextColumn("{task.description}"), rich.progress.BarColumn(),
                rich.progress.MofNCompleteColumn(), rich.progress.TextColumn("steps"),
                rich.progress.TimeRemainingColumn(), console=self.console)

    def __enter__(self) -> SweepProgress:
        self.start = self._count()
        if self.bar is not None:
            self.bar.start()
            self.job = self.bar.add_task(self._members(), total=self.total, completed=self.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self._count()
            self.bar.update(self.job, completed=self.done, description=self._members())
            self.bar.stop()

    def update(self) -> None:
        """Look at the folders and draw."""
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(self.job, completed=self._count(), description=self._members())
        elif now - self.last > LINE_EVERY:
            self.last = now
            self._count()
            self.say(f"{self.state()}{self._left(now - self.began)}")

    def state(self) -> str:
        """Return `3 of 12 members complete, 4,000 of 24,000 steps`."""
        self._count()
        return (f"{len(self.complete):,} of {len(self.steps):,} members complete, "
                f"{self.done:,} of {self.total:,} steps")

    def say(self, message: str) -> None:
        """Print a line."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def _members(self) -> str:
        return f"{len(self.complete):,} of {len(self.steps):,} members"

    def _count(self) -> int:
        self.done = sum(steps if path in self.complete else min(steps, recorded_step(path))
                        for path, steps in self.steps.items())
        return self.done

    def _left(self, seconds: float) -> str:
        if self.done <= self.start:
            return ""
        left = seconds / (self.done - self.start) * (self.total - self.done)
        return f", {timedelta(seconds=round(left))} left"


__all__ = ["SweepProgress", "recorded_step"]
