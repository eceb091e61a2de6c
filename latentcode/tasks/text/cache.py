"""What was made once of a text, in folders that runs have, or a cache that processes share.

Nothing here imports torch: runs make their excerpts known when they are opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from latentcode.config import LanguageConfig, TaskConfig
from latentcode.errors import ArtifactError, reason
from latentcode.files.locks import exclusive
from latentcode.files.storage import replace_folder

CACHE = "LATENTCODE_CACHE"
"""The environment variable that names the cache folder."""
MARKER = "text.json"
"""The file that a folder of excerpts holds; see `stored`."""
_KNOWN: dict[str, dict[str, Path]] = {}
"""Configuration without its revision -> revision -> folder of excerpts, of runs that were opened.
"""


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


def key_of(config: LanguageConfig) -> str:
    """Return what identifies a text, whatever its revision."""
    return digest_of(*(getattr(config, field.name) for field in fields(config)
                       if field.name not in ("name", "revision")))


def make_known(config: TaskConfig, folder: Path) -> None:
    """Let `known` find a folder of excerpts, where it is one."""
    if isinstance(config, LanguageConfig) and (folder / MARKER).is_file():
        _KNOWN.setdefault(key_of(config), {})[config.revision] = folder


def keep_with(config: TaskConfig, folder: Path) -> None:
    """Copy the excerpts of a configuration to a folder that is not there yet, where it has any."""
    if getattr(config, "revision", "") and (found := known(config)) is not None:
        shutil.copytree(found, folder)


def known(config: TaskConfig) -> Path | None:
    """Return the folder of excerpts of a configuration, None where there is none.

    Without a revision, it is the one that was made known or written last.
    """
    if not isinstance(config, LanguageConfig) or not config.text:
        return None
    runs = {revision: folder for revision, folder in _KNOWN.get(key_of(config), {}).items()
            if (folder / MARKER).is_file()}
    cached = sorted(cache_folder(key_of(config)).glob(f"*/{MARKER}"),
                    key=lambda file: file.stat().st_mtime)
    if not config.revision:
        return next(reversed([*(file.parent for file in cached), *runs.values()]), None)
    found = runs.get(config.revision) or cache_folder(key_of(config), config.revision)
    return found if (found / MARKER).is_file() else None
