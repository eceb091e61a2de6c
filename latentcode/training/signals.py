"""Ctrl-C and SIGTERM ask the training loop to stop between two updates."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal has asked to stop, and which one."""

    def __init__(self) -> None:
        self.signal: int | None = None

    @property
    def requested(self) -> bool:
        """Whether to stop after the update in progress."""
        return self.signal is not None

    def exception(self, message: str) -> BaseException:
        """Return what the signal would have raised: `KeyboardInterrupt`, or `SystemExit(143)`."""
        if self.signal == signal.SIGTERM:
            return SystemExit(128 + signal.SIGTERM)
        return KeyboardInterrupt(message)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Yield a request that SIGINT and SIGTERM set; a second signal interrupts at once.

    An exception raised in the middle of an update would leave half of the weights updated, so
    the first signal is only noted. Outside the main thread signals cannot be caught; there the
    request is never set.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.requested:
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, handle)
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
