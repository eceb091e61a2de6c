"""A bar with the remaining time for work that knows how much of it there is."""

from __future__ import annotations

import time
from collections.abc import Callable

LINE_EVERY = 10.0
"""Seconds between lines where there is no terminal to draw on."""

Progress = Callable[[int, int], None]
"""Called with (done, total) as work goes on."""


def bar(what: str) -> Progress:
    """Return a callback (done, total) that draws a bar on a terminal.

    Elsewhere, in a log file for instance, it prints a line now and then.
    """
    from rich.console import Console
    from rich.progress import Progress as Drawing

    console = Console(stderr=True)
    drawn = Drawing(console=console, transient=True) if console.is_terminal else None
    last = time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal last
        if drawn is not None:
            if not drawn.tasks:
                drawn.start()
                drawn.add_task(what, total=total)
            drawn.update(drawn.tasks[0].id, completed=done)
            if done >= total:
                drawn.stop()
        elif time.monotonic() - last > LINE_EVERY:
            last = time.monotonic()
            console.print(f"{what}: {done:,} of {total:,}", highlight=False)

    return update
