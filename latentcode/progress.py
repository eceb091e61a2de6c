"""How far is it, and how long will it take? Bars on a terminal, lines elsewhere."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import rich.progress
    from rich.console import Console

LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal to draw on."""
CELL_EVERY = 0.3
"""Seconds between changes of the line in a notebook."""
PATIENCE = 1.0
"""Seconds before somebody who asked for no bar sees one."""
SWITCH = "LATENTCODE_PROGRESS"
"""Environment variable: 0 draws no bars but those that are asked for, as by commands."""

Progress = Callable[[int, int], None]
"""Called with (done, total) as work goes on."""
T = TypeVar("T")
P = ParamSpec("P")


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
        _entered.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.bars is not None:
            with suppress(OSError):
                self.bars.stop()
        _entered.remove(self)

    def say(self, message: str) -> None:
        """Print a message, above the bars if there are some."""
        with suppress(OSError):  # a terminal that was closed must not end the work it showed
            if self.bars is not None:
                self.console.print(
                    message, highlight=False, markup=False, emoji=False, soft_wrap=True)
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


class Cell(Display):
    """The output of a cell of a notebook, where one line stands that changes."""

    def __init__(self) -> None:
        super().__init__(enabled=False)
        self._handle: Any = None

    def say(self, message: str) -> None:
        from IPython.display import display

        shown = {"text/plain": message}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def line_is_due(self) -> bool:
        now = time.monotonic()
        if now - self._last <= CELL_EVERY:
            return False
        self._last = now
        return True

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._handle is not None:
            self.say("")


class Drawn:
    """A callback that draws a bar while there is something to do, and `close` takes it away.

    Without a terminal, in a log file for instance, it prints a line now and then.

    unasked  nobody asked for it: it waits for `PATIENCE` seconds, and for other bars to end
    doing    stands behind the numbers from the next call on; see `say_doing`
    """

    def __init__(self, what: str, *, unasked: bool = False) -> None:
        self.what, self.unasked, self.doing = what, unasked, ""
        self.display = Cell() if _in_notebook() else Display(transient=True)
        self._began = time.monotonic()
        self._bar: Bar | None = None
        self._over = False

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None and self._may_begin():
            self.display.__enter__()
            # What was done before has no known pace.
            self._bar = Bar(self.display, self.what, total, done=done)
        if self._bar is not None:
            self._bar.update(done, text=self.doing)
            if self.display.line_is_due():
                doing = f" ({self.doing})" if self.doing else ""
                self.display.say(f"{self.what}: {done:,} of {total:,}{self._bar.left()}{doing}")
        if done >= total:
            self.close()

    def __enter__(self) -> Drawn:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away, for good."""
        if self._bar is not None and not self._over:
            self.display.__exit__(None, None, None)
        self._over = True

    def _may_begin(self) -> bool:
        waited = time.monotonic() - self._began >= PATIENCE
        return not self._over and (not self.unasked or (waited and not _entered))


_entered: list[Display] = []
"""What shows something at the moment, or was told to show nothing: beside it nothing is drawn that
nobody asked for. Two bars that know nothing of each other overwrite each other."""
_is_told = ContextVar("_is_told", default=False)
"""Whether somebody is told of the progress in a way of their own, beside which nothing is drawn."""


def bar(what: str) -> Drawn:
    """Return a callback that draws a bar while there is something to do.

    As a context it takes the bar away at its end, where the work failed, too.
    """
    return Drawn(what)


def say_doing(progress: Progress | None, text: str) -> None:
    """Say what is being done, where a bar of ours is drawn; other callbacks have no place for it.
    """
    if isinstance(progress, Drawn):
        progress.doing = text


def watched(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Show somebody who watches how far a function is, unless it is given a `progress`.

    what  stands before the bar

    Nothing is shown in scripts without a terminal, threads and worker processes, nor where the
    environment says LATENTCODE_PROGRESS=0.
    """
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def shown(*args: P.args, **kwargs: P.kwargs) -> T:
            given = kwargs.get("progress")
            if given is None:
                if _is_told.get() or not _is_watched():
                    return function(*args, **kwargs)
                given = Drawn(what, unasked=True)
                kwargs["progress"] = given
            # Our own bars begin when they are first called, and what comes before has its own.
            token = _is_told.set(_is_told.get() or not isinstance(given, Drawn))
            try:
                return function(*args, **kwargs)
            finally:
                _is_told.reset(token)
                if isinstance(given, Drawn) and given.unasked:
                    given.close()

        return shown

    return decorate


def _is_watched() -> bool:
    """Return whether somebody sees what is drawn: at a terminal, or in a notebook."""
    return (os.environ.get(SWITCH) != "0"
            and threading.current_thread() is threading.main_thread()
            and multiprocessing.parent_process() is None
            and (_in_notebook() or (sys.stderr is not None and sys.stderr.isatty())))


def _in_notebook() -> bool:
    """Return whether this runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


__all__ = ["SWITCH", "Bar", "Display", "Progress", "bar", "reported", "say_doing", "watched"]
