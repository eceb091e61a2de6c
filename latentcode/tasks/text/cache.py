"""Folders of excerpts, which runs have, and the cache that the processes of a machine share.

Nothing here imports torch: runs make their excerpts known when they are opened.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from latentcode.config import LanguageConfig, TaskConfig
from latentcode.errors import ArtifactError, reason
from latentcode.files.storage import VARIABLE, default_cache, exclusive

MARKER = "text.json"
"""The file that a folder of excerpts holds; see `sources`."""
_KNOWN: dict[tuple[str, str], Path] = {}
"""Text and revision -> folder of excerpts of a run that was opened."""


def cache_folder(*names: str) -> Path:
    """Return a folder of the cache of texts."""
    return default_cache().joinpath("text", *names)


def digest_of(*values: object) -> str:
    """Return 12 hex digits that identify plain values."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:12]


def made_once(path: Path, make: Callable[[Path], None]) -> Path:
    """Return a path of the cache, which `make` writes where it is not there yet.

    One process writes it, whole or not at all, while others wait. `ArtifactError` for a cache
    that cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"the cache {path.parent} cannot be made: {reason(error)}; expected "
                            f"{VARIABLE} to name a folder that can be written") from None
    if not path.exists():
        with exclusive(path.with_name(f"{path.name}.lock"), wait=True):
            if not path.exists():
                make(path)
    return path


def excerpts_folder(config: LanguageConfig) -> Path:
    """Return the folder of the cache for the excerpts of a text and revision."""
    return cache_folder(*_key(config))


def make_known(config: TaskConfig, folder: Path) -> None:
    """Let `known` find a folder of excerpts, where it is one."""
    if isinstance(config, LanguageConfig) and (folder / MARKER).is_file():
        _KNOWN[_key(config)] = folder


def known(config: TaskConfig) -> Path | None:
    """Return the folder of excerpts of a configuration and its revision, None where none is here.
    """
    if not isinstance(config, LanguageConfig) or not config.revision:
        return None
    folders = (_KNOWN.get(_key(config)), excerpts_folder(config))
    return next((folder for folder in folders if folder and (folder / MARKER).is_file()), None)


def keep_with(config: TaskConfig, folder: Path) -> None:
    """Copy the excerpts of a configuration to a folder that is not there yet, where it has any."""
    if (excerpts := known(config)) is not None:
        shutil.copytree(excerpts, folder)


def _key(config: LanguageConfig) -> tuple[str, str]:
    text = digest_of(*(getattr(config, field.name) for field in fields(config)
                       if field.name not in ("name", "revision")))
    return text, config.revision
