"""How far is a sweep? One bar over the whole grid, or a line now and then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from latentcode.progress import Bar, Display
from latentcode.runs.metric_file import recorded_step


class SweepProgress:
    """Shows members complete, steps done of all and the remaining time.

    steps  run folder -> number of updates that it will have
    """

    def __init__(self, display: Display, steps: Mapping[Path, int]) -> None:
        self.display, self.steps = display, steps
        self.complete: set[Path] = set()

    def begin(self) -> None:
        """Draw for the first time, from where the folders are."""
        self.bar = Bar(self.display, self._members(), sum(self.steps.values()),
                       done=self._done(), text="steps")

    def update(self) -> None:
        """Look at the folders and draw."""
        self.bar.update(self._done(), what=self._members())
        if self.display.line_is_due():
            self.display.say(f"{self.state()}{self.bar.left()}")

    def state(self) -> str:
        """Return `3 of 12 members complete, 4,000 of 24,000 steps`."""
        return (f"{self._members()} complete, {self._done():,} of "
                f"{sum(self.steps.values()):,} steps")

    def _members(self) -> str:
        return f"{len(self.complete):,} of {len(self.steps):,} members"

    def _done(self) -> int:
        return sum(steps if path in self.complete else min(steps, recorded_step(path))
                   for path, steps in self.steps.items())


__all__ = ["SweepProgress"]
