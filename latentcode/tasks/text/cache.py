"""Where are tokens kept that were made once? In a cache that processes of a machine share."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from latentcode.errors import ArtifactError, reason
from latentcode.files.locks import exclusive
from latentcode.files.storage import replace_folder

CACHE = "LATENTCODE_CACHE"
"""The environment variable that names the cache folder."""


def cache_folder(*names: str) -> Path:
    """Return a folder of the cache: below LATENTCODE_CACHE, else below ~/.cache/latentcode."""
    root = os.environ.get(CACHE)
    above = Path(root).expanduser() if root else Path.home() / ".cache" / "latentcode"
    return above.joinpath("text", *names)


def digest_of(*values: object) -> str:
    """Return 12 hex digits that identify plain values."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]


def made_once(folder: Path, marker: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, which `make` fills where it is not there yet.

    marker  a file that a folder of this kind holds

    One process makes it, others wait; it is there whole or not at all. `ArtifactError` for a full
    disk.
    """
    if not (folder / marker).is_file():
        with making(folder):
            if not (folder / marker).is_file():
                with replace_folder(folder, overwrite=True, marker=marker) as temporary:
                    make(temporary)
    return folder


@contextmanager
def making(path: Path) -> Iterator[None]:
    """Hold the lock of a file or folder of the cache, after waiting for whoever makes it now."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"the cache {path.parent} cannot be made: {reason(error)}; expected "
                            f"{CACHE} to name a folder that can be written") from None
    with exclusive(path.with_name(f"{path.name}.lock"), wait=True):
        yield
