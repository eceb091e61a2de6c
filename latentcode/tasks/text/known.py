"""Whose excerpts are on this machine? Those of runs that were opened, and those in the cache.

Nothing here imports torch: runs make theirs known when they are opened.
"""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path

from latentcode.config import LanguageConfig, TaskConfig
from latentcode.tasks.text.cache import cache_folder, digest_of

MARKER = "text.json"
"""The file that a folder of excerpts holds; see `stored`."""
_KNOWN: dict[str, dict[str, Path]] = {}
"""Configuration without its revision -> revision -> folder."""


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
