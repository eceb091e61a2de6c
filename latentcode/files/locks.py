"""One process at a time may write into a run, or make what several read."""

from __future__ import annotations

import os
import re
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latentcode.errors import RunError


@contextmanager
def exclusive(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold an advisory lock on the file `path`; `RunError` names the process that has it.

    wait  until that process lets go, rather than raise

    The operating system releases the lock when the process ends, however it ends. Where there
    are no such locks (Windows, some network file systems) a warning says so.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"{path.parent} cannot be written: {error}") from None
    try:
        if _lock(descriptor, path, wait=wait):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder(path: Path) -> int | None:
    """Return the process that holds the lock on the file `path`, or None; nothing is written.

    `RunError` where the lock is held and its file does not say by whom.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        _lock(descriptor, path)
        return None
    except RunError as error:
        found = re.search(r"process (\d+) on", str(error))
        if found is None:
            raise
        return int(found[1])
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, *, wait: bool = False) -> bool:
    try:
        import fcntl
    except ImportError:
        _warn_without_lock(path, "this platform has no file locks")
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        owner = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
        raise RunError(f"{path.parent} is being written by {owner}; expected no other process "
                       "to use it") from None
    except OSError as error:
        _warn_without_lock(path, str(error))
        return False
    return True


def _warn_without_lock(path: Path, reason: str) -> None:
    warnings.warn(f"{path.parent} is not locked ({reason}): do not train in it from two processes "
                  "at once", RuntimeWarning, stacklevel=4)
