"""What lies in a folder, and disks that fill."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc/self/fd")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*")
            if f.is_file()}


def flip(path: Path, place: int = -1) -> None:
    """Change a bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def holder(file: Path) -> int | None:
    """Return the process that has a file open, such as a lock; None if there is none."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # a process that has ended meanwhile
            if os.readlink(descriptor) == str(file.resolve()):
                return int(descriptor.parts[2])
    return None


def trained(run: Path) -> dict[str, bytes]:
    """Return what training determines of a run: all but times and the machine."""
    kept = ("checkpoints/", "metrics.jsonl", "config.yaml")
    return {name: content for name, content in contents(run).items() if name.startswith(kept)}


def outcome(run: Path) -> dict[str, bytes]:
    """Return what training ends with, however often it was interrupted."""
    last = sorted((run / "checkpoints").iterdir())[-1]
    return {"metrics.jsonl": (run / "metrics.jsonl").read_bytes(), **contents(last)}


@contextmanager
def fails(
    module: Any, name: str, when: Callable[[str], bool], error: OSError = FULL, *,
    argument: int = 0, skip: int = 0,
) -> Iterator[None]:
    """Let a function fail where a path is one of `when`, after `skip` of them.

    argument  which of its arguments is the path, the descriptor, or what has a path
    """
    real, struck = getattr(module, name), 0

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal struck
        target = arguments[argument]
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else str(
            getattr(target, "path", target))
        struck += when(path)
        if when(path) and struck > skip:
            raise OSError(error.errno, error.strerror, path)
        return real(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, failing)
        yield
    assert struck > skip, f"{name} was never asked for such a path"
