"""How far is training, and how well does it go? A bar on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType

import rich.progress
from rich.console import Console

from latentcode.metrics import Metric


class Progress:
    """Shows step, training loss, the headline metric of each split and the remaining time.

    On a terminal this is a bar; elsewhere one line per evaluation; nothing if not `enabled`.
    """

    def __init__(
        self, steps: int, start: int, headline: str, *, enabled: bool = True,
        console: Console | None = None,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.steps, self.start, self.headline, self.enabled = steps, start, headline, enabled
        self.loss = ""
        self.of_split: dict[str, str] = {}
        self.began = time.perf_counter()
        self.bar: rich.progress.Progress | None = None
        if enabled and self.console.is_terminal:
            self.bar = rich.progress.Progress(
                rich.progress.BarColumn(bar_width=24),
                rich.progress.MofNCompleteColumn(),
                rich.progress.TextColumn("{task.description}"),
                rich.progress.TimeRemainingColumn(),
                console=self.console)

    def __enter__(self) -> Progress:
        if self.bar is not None:
            self.bar.start()
            self.job = self.bar.add_task("", total=self.steps, completed=self.start)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, step: int) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.job, completed=step)

    def metrics(self, split: str, metrics: Mapping[str, Metric]) -> None:
        """Take note of new metrics of a split."""
        if self.headline in metrics:
            self.of_split[split] = f"{split} {metrics[self.headline].mean:.3f}"
        if "training_loss" in metrics:
            self.loss = f"loss {metrics['training_loss'].mean:.4g}"
        if self.bar is not None:
            self.bar.update(self.job, description=self._state())

    def evaluated(self, step: int) -> None:
        """All splits have new metrics: without a bar, print a line."""
        if self.enabled and self.bar is None:
            left = ""
            if step > self.start:
                seconds = (time.perf_counter() - self.began) / (step - self.start)
                left = f"  {timedelta(seconds=round(seconds * (self.steps - step)))} left"
            self._print(f"step {step:,} of {self.steps:,}  {self._state()}{left}")

    def say(self, message: str) -> None:
        """Print a message, if anything is to be printed."""
        if self.enabled:
            self._print(message)

    def _state(self) -> str:
        scores = ", ".join(self.of_split.values())
        return "  ".join(part for part in (self.loss, scores and f"{self.headline}: {scores}")
                         if part)

    def _print(self, message: str) -> None:
        if self.bar is not None:
            self.console.print(message, highlight=False, markup=False)
        else:
            print(message, file=self.console.file, flush=True)


__all__ = ["Progress"]
