"""What stops a command from outside, in one line: memory, disk, permissions, a closed pipe."""

from __future__ import annotations

import errno
import os
import re
import sys

from latentcode.errors import is_out_of_memory

SIGPIPE = 141
"""Exit status of a command whose reader has gone, as of one that the signal ended."""


def of_this_machine(error: Exception) -> str | None:
    """Return one line about an error that this machine caused, or None for any other.

    MemoryError and torch's errors of memory; errors of the operating system, with their file.
    """
    if is_out_of_memory(error):
        asked = re.search(r"(?:tried|unable) to allocate ([\d.]+ \w+)", str(error), re.I)
        size = f" to allocate {_readable(asked[1])}" if asked else ""
        on = "the GPU has" if "CUDA" in str(error) else "this machine has"
        return f"{on} not enough memory{size}; expected fewer instances, or a smaller model"
    if isinstance(error, OSError) and error.errno is not None:
        what = error.strerror or errno.errorcode.get(error.errno, "unknown")
        if error.errno in (errno.EMFILE, errno.ENFILE):
            what += " (ulimit -n says how many may be)"
        file = "" if error.filename is None else f" {os.fsdecode(error.filename)}"
        return f"cannot read or write{file}: {what}"
    return None


def _readable(size: str) -> str:
    """Return `37.3 GiB` for `40000000000 bytes`; other units stay."""
    number, unit = size.split()
    return f"{float(number) / 2**30:.3g} GiB" if unit.startswith("byte") else size


def open_streams() -> None:
    """Let what is printed go nowhere where a stream was closed (`>&-`), not into the next file."""
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115  (until the end)
            if stream.fileno() != descriptor:
                os.dup2(stream.fileno(), descriptor)
            setattr(sys, name, stream)


def flush() -> None:
    """Write what was printed; an `OSError` if nobody reads it, or the disk is full."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python would try again at its end, and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


__all__ = ["SIGPIPE", "flush", "of_this_machine", "open_streams"]
