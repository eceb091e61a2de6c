"""How far is it, and how long will it take? Bars on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import rich.progress
    from rich.console import Console

LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal to draw on."""

Progress = Callable[[int, int], None]
"""Called with (done, total) as work goes on."""
T = TypeVar("T")


def reported(items: Iterable[T], total: int, progress: Progress | None) -> Iterator[T]:
    """Yield items, and report each once the caller is done with it."""
    for done, item in enumerate(items, 1):
        yield item
        if progress is not None:
            progress(done, total)


class Display:
    """Where progress is shown: as bars, or in lines where there is no terminal.

    enabled    nothing is ever shown without it
    transient  whether the bars disappear at the end
    """

    def __init__(
        self, *, enabled: bool = True, transient: bool = False, console: Console | None = None
    ) -> None:
        self.enabled = enabled
        self.bars: rich.progress.Progress | None = None
        self._last = time.monotonic()
        if enabled:
            from rich import progress
            from rich.console import Console

            self.console = console or Console(stderr=True)
            if self.console.is_terminal:
                self.bars = progress.Progress(
                    progress.TextColumn("{task.description}", markup=False),
                    progress.BarColumn(bar_width=24), progress.MofNCompleteColumn(),
                    progress.TextColumn("{task.fields[text]}", markup=False),
                    progress.TimeRemainingColumn(), console=self.console, transient=transient)

    def __enter__(self) -> Display:
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.bars is not None:
            self.bars.stop()

    def say(self, message: str) -> None:
        """Print a message, above the bars if there are some."""
        if self.bars is not None:
            self.console.print(message, highlight=False, markup=False, emoji=False, soft_wrap=True)
        elif self.enabled:
            print(message, file=self.console.file, flush=True)

    def line(self, message: str) -> None:
        """Print a message where there are no bars."""
        if self.bars is None:
            self.say(message)

    def line_is_due(self) -> bool:
        """Whether there are no bars and the last line that was due is `LINE_EVERY` seconds ago."""
        now = time.monotonic()
        if self.bars is not None or now - self._last <= LINE_EVERY:
            return False
        self._last = now
        return True


class Bar:
    """One piece of work on a display.

    what   stands before the bar
    total  how much there is to do, of which `done` is done already
    text   stands behind the numbers
    """

    def __init__(
        self, display: Display, what: str, total: int, *, done: int = 0, text: str = ""
    ) -> None:
        self.display, self.total, self.start, self.done = display, total, done, done
        self._began = time.monotonic()
        if display.bars is not None:
            self._task = display.bars.add_task(what, total=total, completed=done, text=text)

    def update(self, done: int, *, what: str | None = None, text: str | None = None) -> None:
        """Say how much is done; texts that are not given stay."""
        self.done = done
        if self.display.bars is not None:
            self.display.bars.update(self._task, completed=done, description=what)
            if text is not None:
                self.display.bars.update(self._task, text=text)

    def left(self, separator: str = ", ") -> str:
        """Return `, 0:01:30 left`, or nothing before it can be told."""
        if self.done <= self.start:
            return ""
        seconds = (time.monotonic() - self._began) / (self.done - self.start)
        return f"{separator}{timedelta(seconds=round(seconds * (self.total - self.done)))} left"


def bar(what: str) -> Progress:
    """Return a callback that draws a bar while there is something to do.

    Without a terminal, in a log file for instance, it prints a line now and then.
    """
    display = Display(transient=True)
    drawn: Bar | None = None

    def update(done: int, total: int) -> None:
        nonlocal drawn
        if drawn is None:
            display.__enter__()
            drawn = Bar(display, what, total, done=done)  # what was done before has no known pace
        drawn.update(done)
        if display.line_is_due():
            display.say(f"{what}: {done:,} of {total:,}{drawn.left()}")
        if done >= total:
            display.__exit__(None, None, None)

    return update


__all__ = ["Bar", "Display", "Progress", "bar", "reported"]
