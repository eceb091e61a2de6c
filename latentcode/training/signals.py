"""Signals, `request_stop` and deadlines ask to stop training between two updates."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP")
                if hasattr(signal, name))
"""What asks to stop; SIGHUP, which Windows lacks, is sent when a terminal is closed."""
_stop_all = threading.Event()


def request_stop() -> None:
    """Ask all training of this process, present and future, to stop as SIGTERM does.

    For a process whose owner cannot send a signal, or is gone. Asking again, before or
    after a signal, changes nothing: no update in progress is ever broken off by it.
    """
    _stop_all.set()


class StopRequest:
    """Whether a signal, `request_stop` or a deadline has asked to stop, and which signal."""

    def __init__(self, deadline: float | None = None) -> None:
        self.signal: int | None = None
        self.deadline = deadline
        self._needed = 0.0

    @property
    def interrupted(self) -> bool:
        """Whether somebody has asked to stop."""
        return self.signal is not None or _stop_all.is_set()

    @property
    def requested(self) -> bool:
        """Whether to stop after the update in progress.

        That is so before the deadline already, by the time that was `timed` last: what happens
        after the last update has to end before the deadline, too.
        """
        return self.interrupted or (
            self.deadline is not None and time.time() + self._needed >= self.deadline)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure work that can come between the last update and the end, such as a checkpoint."""
        began = time.perf_counter()
        yield
        self._needed = max(self._needed, 2.0 * (time.perf_counter() - began))

    def exception(self, message: str) -> BaseException:
        """Return what the signal would have raised: `KeyboardInterrupt`, or `SystemExit` with 128
        and its number, that of SIGTERM where there was none."""
        if self.signal == signal.SIGINT:
            return KeyboardInterrupt(message)
        return SystemExit(128 + (self.signal or signal.SIGTERM))


@contextmanager
def stop_on_signals(deadline: float | None = None) -> Iterator[StopRequest]:
    """Yield a request that SIGINT, SIGTERM and SIGHUP set; a second signal interrupts at once.

    An exception raised in the middle of an update would leave half of the weights updated, so
    the first signal is only noted. Outside the main thread signals cannot be caught; there the
    request is never set. A signal that is ignored, as SIGHUP is under `nohup`, stays so.
    """
    request = StopRequest(deadline)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal is not None:
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, handle) for number in SIGNALS
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
