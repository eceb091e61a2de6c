"""Reads `.npz` files that somebody else made: plain arrays, and no larger than they say."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np

from latentcode.errors import ArtifactError, check

MOST_RATIO = 50
"""How many times as large as the file its arrays may be, all together. Weights hardly compress;
zip files made to fill the memory unpack to a thousand times their size."""
SMALL = 2**26
"""Bytes of arrays that are read whatever they are compressed to."""
PICKLE = b"\x80"
"""What pickles begin with."""
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class PickleError(ArtifactError):
    """An array that holds Python objects."""


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an `.npz`; `ArtifactError` for what is damaged, larger or no array.

    Sizes are those of the headers, and all are compared before any array is read: what a member
    unpacks to must be what its shape and type need, and all of them together no more than
    `MOST_RATIO` times the file.
    """
    try:
        with path.open("rb") as opened:
            start = opened.read(len(np.lib.format.MAGIC_PREFIX))
        check(start != np.lib.format.MAGIC_PREFIX, f"{path} is a single array; expected an .npz",
              ArtifactError)
        check(not start.startswith(PICKLE), f"{path} holds pickled content", PickleError)
        with zipfile.ZipFile(path) as file:
            total = sum(_bytes_of(path, file, member) for member in file.infolist())
            most = max(SMALL, MOST_RATIO * path.stat().st_size)
            check(total <= most, f"{path} unpacks to {total:,} bytes, from "
                  f"{path.stat().st_size:,}; expected at most {most:,}", ArtifactError)
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except ArtifactError:
        raise
    except Exception as error:  # numpy, zipfile and zlib each have their own
        raise ArtifactError(f"{path} is damaged or not an .npz: {error}") from None


def _bytes_of(path: Path, file: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Return the bytes that a member unpacks to, which are those that its array needs."""
    with file.open(member) as content:
        try:
            version = np.lib.format.read_magic(content)
            check(version in HEADERS, f"its format is {version}", ArtifactError)
            shape, _, dtype = HEADERS[version](content)
        except (ValueError, ArtifactError) as error:
            raise ArtifactError(f"{path} holds {member.filename}, which is no array: {error}"
                                ) from None
        if dtype.hasobject:
            raise PickleError(f"{path} holds pickled content, in {member.filename}")
        needed = content.tell() + math.prod(shape) * dtype.itemsize
    check(member.file_size == needed, f"{path} holds {member.filename}, which unpacks to "
          f"{member.file_size:,} bytes; expected {needed:,} for {dtype} of shape {shape}",
          ArtifactError)
    return needed


__all__ = ["PickleError", "read_arrays"]
