"""Where is the text of a configuration? With a run, in the cache, in files, or on the hub."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from latentcode.config import LanguageConfig
from latentcode.errors import ConfigError, HubError, check
from latentcode.tasks.text.cache import MARKER, cache_folder, key_of, known, made_once
from latentcode.tasks.text.documents import TABLES, text_files
from latentcode.tasks.text.hub import HubText
from latentcode.tasks.text.local import LocalText
from latentcode.tasks.text.source import Source
from latentcode.tasks.text.stored import (
    StoredText,
    check_revision,
    read_description,
    write_excerpts,
)

HOW = ("a folder or file of text, or a dataset on the hub, as task.text (on the command line "
       "--task.text). `latentcode zoo text packages FOLDER` writes the text of the installed "
       "packages")

ON_THE_HUB = r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*"
STREAMED = 2**32
"""Bytes of parquet or JSONL in a folder above which it is streamed, shard by shard."""


class Missing(ConfigError):
    """A text that is not here."""


def open_text(config: LanguageConfig) -> StoredText:
    """Return the text of a configuration, in the state that `revision` names.

    Without a revision it is the state that the files or the hub have now; where they cannot be
    reached, the one that is on this machine. `StoredText.config` has the revision filled in.

    `ConfigError` says what is wrong with the text, or that it has changed; `HubError` that it
    cannot be reached.
    """
    check(bool(config.text), f"task {config.name!r} has no instances to draw: it names no text, "
          f"like runs that were imported; expected {HOW}")
    folder = known(config) if config.revision else None
    if folder is None:
        try:
            source = source_of(config)
            folder = _made(config, source)
        except (Missing, HubError):
            folder = known(config)
            if folder is None:
                raise
    full = replace(config, revision=read_description(folder)["text"]["revision"])
    return StoredText(folder, full, lambda: source_of(full))


def source_of(config: LanguageConfig) -> Source:
    """Return where the text can be read in full."""
    path = Path(config.text).expanduser()
    if path.exists() and not _is_large(path):
        return LocalText(config)
    check(path.exists() or re.fullmatch(ON_THE_HUB, config.text, re.ASCII) is not None,
          f"task.text is {config.text!r}, which does not exist; expected {HOW}", Missing)
    return HubText(config)


def _is_large(path: Path) -> bool:
    """Whether a folder of tables is too large for its tokens to be kept, like one on the hub."""
    if not path.is_dir():
        return False
    files = text_files(path)
    return (all(file.suffix in TABLES for file in files)
            and sum(file.stat().st_size for file in files) > STREAMED)


def _made(config: LanguageConfig, source: Source) -> Path:
    check_revision(config, source)
    full = replace(config, revision=source.revision)
    return made_once(cache_folder(key_of(full), full.revision), MARKER,
                     lambda folder: write_excerpts(folder, full, source))
