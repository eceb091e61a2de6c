"""Locks: one process at a time may write into a run, or make what several read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from latentcode.errors import RunError, check


@contextmanager
def exclusive(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock on the file `path`, which the system releases however the process ends.

    Args:
        path: The lock file; it stays.
        wait: Wait until another process lets go.

    Raises:
        RunError: Another process holds the lock, or the folder cannot be written.
    """
    # The lock itself would make the folder.
    check(path.parent.is_dir(), f"{path.parent} does not exist; expected a folder", RunError)
    lock = FileLock(path, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(f"{path.parent} is being written by another process; expected no other "
                       "process to use it") from None
    except OSError as error:
        raise RunError(f"{path.parent} cannot be written: {error}") from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on the file `path`; none is made."""
    if not path.exists():
        return False
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False
