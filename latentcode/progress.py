"""Progress of long work: a bar on a terminal or in a notebook, a line now and then elsewhere."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    import rich.progress
    from rich.console import Console

LINE_EVERY = 10.0
"""Seconds between lines where no bar can be drawn."""
PATIENCE = 1.0
"""Seconds before a bar that nobody asked for is drawn."""
SILENT = 2.0
"""Seconds before a line says what is waited for: what fails at once says that alone."""
SWITCH = "LATENTCODE_PROGRESS"
"""Environment variable: 0 draws no bars but those that are asked for, as by commands."""

Progress = Callable[[int, int], None]
"""Called with (done, total) as work goes on."""
T = TypeVar("T")
P = ParamSpec("P")

_shown: list[object] = []
"""Bars and callbacks that show progress now. Beside them no bar is drawn that nobody asked for: two
bars that know nothing of each other overwrite each other."""


def reported(items: Iterable[T], total: int, progress: Progress | None) -> Iterator[T]:
    """Yield items, and report each once the caller is done with it."""
    for done, item in enumerate(items, 1):
        yield item
        if progress is not None:
            progress(done, total)


class Bar:
    """Progress of one piece of work, with the time that is left; called with (done, total).

    As a context it begins at once if `total` is known, else with the first call, and ends where the
    work fails, too.

    what       text before the bar; `text` is what stands behind the numbers, `unit` what they count
    done       how much was done before, at a pace that is not known
    enabled    False shows nothing, and lets nothing be shown that nobody asked for
    transient  whether the bar disappears once all is done
    unasked    wait for `PATIENCE` seconds, and for other bars to end
    """

    def __init__(
        self, what: str, total: int = 0, *, done: int = 0, enabled: bool = True,
        transient: bool = True, unasked: bool = False,
    ) -> None:
        self.what, self.total, self.done, self.text, self.unit = what, total, done, "", ""
        self.enabled, self.transient, self.unasked = enabled, transient, unasked
        self.console: Console | None = None
        self.bars: rich.progress.Progress | None = None
        self._waiting: threading.Timer | None = None
        self._start, self._ended = done, False
        self._began = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if self.total:
            self._begin()
        return self

    def wait(self, text: str) -> None:
        """Show what is done before the first call, however long it takes; there is no time left.

        Where there is no bar, a line says so after `SILENT` seconds.
        """
        self._begin(text)
        self._waiting = threading.Timer(SILENT, self.say, [f"{self.what}: {text}"])
        self._waiting.daemon = True
        if self.enabled and self.bars is None:
            self._waiting.start()

    def __exit__(self, *error: object) -> None:
        self._ended = True
        if self._waiting is not None:
            self._waiting.cancel()
        if self in _shown:
            _shown.remove(self)
            if self.bars is not None:
                with suppress(OSError):
                    self.bars.stop()

    def __call__(self, done: int, total: int, *, line: bool = False) -> None:
        """Show how much is done.

        line  where there is no bar, print a line even if the last one is not long ago
        """
        self.done, self.total = done, total
        if self not in _shown:
            waits = self.unasked and (_shown or time.monotonic() - self._began < PATIENCE)
            if self._ended or waits:
                return
            self._begin()
        now = time.monotonic()
        if self._waiting is not None:
            line = line or self._waiting.finished.is_set()
            self._waiting.cancel()
            self._start, self._began, self._waiting = done, now, None
            if self.bars is not None:
                self.bars.reset(self.bars.task_ids[0], completed=done, total=total)
        if self.bars is not None:
            self.bars.update(self.bars.task_ids[0], completed=done, total=total,
                             text=" ".join(filter(None, (self.unit, self.text))))
        elif line or now - self._last_line > LINE_EVERY:
            self._last_line, left = now, ""
            if done > self._start:
                seconds = (now - self._began) / (done - self._start) * (total - done)
                left = f", {timedelta(seconds=round(seconds))} left"
            text = f" ({self.text})" if self.text else ""
            unit = f" {self.unit}" if self.unit else ""
            self.say(f"{self.what}: {done:,} of {total:,}{unit}{left}{text}")
        if self.transient and done >= total:
            self.__exit__()

    def say(self, message: str) -> None:
        """Print a message, above the bar if there is one."""
        if self.console is not None:
            with suppress(OSError):  # a terminal that was closed must not end the work it showed
                self.console.print(
                    message, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def _begin(self, text: str = "") -> None:
        _shown.append(self)
        self._start, self._began = self.done, time.monotonic()
        self._last_line = self._began
        if not self.enabled:
            return
        from rich import progress
        from rich.console import Console

        self.console = Console(stderr=True)
        in_notebook = self.console.is_jupyter and find_spec("ipywidgets") is not None
        if self.console.is_terminal or in_notebook:
            self.bars = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(bar_width=24), progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[text]}", markup=False),
                progress.TimeRemainingColumn(), console=self.console, transient=self.transient)
            self.bars.add_task(self.what, total=self.total or None, completed=self.done,
                               text=text or self.text)
            self.bars.start()


def say_doing(progress: Progress | None, text: str, unit: str = "") -> None:
    """Say what is being done, and in which unit it is counted, where a bar of ours is drawn."""
    if isinstance(progress, Bar):
        progress.text, progress.unit = text, unit or progress.unit


def show_early(progress: Progress | None, title: str, table: Callable[[], pd.DataFrame]) -> None:
    """Print a first table above a bar of ours, while the rest is computed."""
    if isinstance(progress, Bar):
        progress.say(f"{title}\n{table().to_string(index=False)}")


def watched(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Show how far a function is, unless it is given a `progress`, to who watches.

    Somebody watches at a terminal or in a notebook; nothing is shown in other scripts, threads and
    worker processes, nor where the environment says LATENTCODE_PROGRESS=0. `what` is the text
    before the bar.
    """
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def shown(*args: P.args, **kwargs: P.kwargs) -> T:
            given = kwargs.get("progress")
            if given is None and not _shown and _is_watched():
                with Bar(what, unasked=True) as kwargs["progress"]:
                    return function(*args, **kwargs)
            if given is None or isinstance(given, Bar):
                return function(*args, **kwargs)
            _shown.append(given)
            try:
                return function(*args, **kwargs)
            finally:
                _shown.remove(given)

        return shown

    return decorate


def _is_watched() -> bool:
    ipython = sys.modules.get("IPython")
    in_notebook = getattr(ipython and ipython.get_ipython(), "kernel", None) is not None
    return (os.environ.get(SWITCH) != "0"
            and threading.current_thread() is threading.main_thread()
            and multiprocessing.parent_process() is None
            and (in_notebook or (sys.stderr is not None and sys.stderr.isatty())))
