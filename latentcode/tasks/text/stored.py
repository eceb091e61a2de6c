"""Excerpts of a text and its tokenizer as a folder, which is kept with a run.

    text.json             what it was made from, revision, end of a document, checksums
    tokenizer.json        as the library tokenizers writes it
    excerpts.safetensors  `split.tokens` and `split.document`, [N, T + 1]
    documents.parquet     `split`, and `TOKEN_COLUMNS`
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.config import LanguageConfig, to_dict
from latentcode.errors import ArtifactError, check
from latentcode.files.formats import header, read_checked
from latentcode.files.provenance import software
from latentcode.files.storage import (
    checksums,
    read_tensors,
    replace_file,
    replace_folder,
    write_json,
    write_tensors,
    write_text,
)
from latentcode.tasks.text.cache import MARKER, excerpts_folder, known, made_once
from latentcode.tasks.text.data import TOKEN_COLUMNS, Excerpts, Stream
from latentcode.tasks.text.documents import TABLES, text_files
from latentcode.tasks.text.hub import HubText
from latentcode.tasks.text.local import LocalText
from latentcode.tasks.text.source import SPLITS, Source, integer_type
from latentcode.tasks.text.tokenizer import FILE, check_vocabulary, tokenizer_from

FORMAT = "latentcode.text"
EXCERPTS, DOCUMENTS = "excerpts.safetensors", "documents.parquet"
FILES = (FILE, EXCERPTS, DOCUMENTS)
KEYS = {"format", "format_version", "provenance", "text", "about", "end", "splits", "sha256"}
HOW = ("a folder or file of text, or a dataset on the hub, as task.text (on the command line "
       "--task.text). `latentcode zoo text packages FOLDER` writes the text of the installed "
       "packages")
ON_THE_HUB = r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*"
STREAMED = 2**32
"""Bytes of parquet or JSONL in a folder above which it is streamed, like a dataset of the hub."""


class StoredText:
    """A text of which excerpts are here; it is read in full when training begins. See `TextData`.

    Args:
        folder: Excerpts and tokenizer.
        config: Of the text, without its revision.

    Raises:
        ArtifactError: Says what is wrong with the folder.
        ConfigError: For a tokenizer with more tokens than the configuration has.
    """

    def __init__(self, folder: Path, config: LanguageConfig) -> None:
        self.folder = folder
        described = read_description(folder)
        self.config = replace(config, revision=described["text"]["revision"])
        self.splits: tuple[str, ...] = tuple(described["splits"])
        text = (folder / FILE).read_text(encoding="utf-8")
        self.tokenizer = tokenizer_from(text, f"{folder / FILE}", described["end"])
        check_vocabulary(self.tokenizer, config.n_vocabulary)

    def excerpts(self, split: str) -> Excerpts:
        tokens, document = (self._arrays.get(f"{split}.{name}") for name in ("tokens", "document"))
        documents = self._documents[self._documents["split"] == split]
        fits = (tokens is not None and document is not None and tokens.shape == document.shape
                and tokens.shape[1:] == (self.config.n_tokens + 1,) and tokens.size > 0
                and tokens.max() < self.tokenizer.n_tokens and document.max() < len(documents))
        check(fits, f"{self.folder / EXCERPTS} has no whole excerpts of {split}; expected "
              f"sequences of {self.config.n_tokens + 1} tokens, and their documents", ArtifactError)
        assert tokens is not None
        assert document is not None
        return Excerpts(torch.from_numpy(tokens.astype(np.int64)),
                        torch.from_numpy(document.astype(np.int64)),
                        documents[list(TOKEN_COLUMNS)].reset_index(drop=True))

    def stream(self, seed: int) -> Stream:
        return source_of(self.config).stream(seed)

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return read_tensors(self.folder / EXCERPTS)

    @cached_property
    def _documents(self) -> pd.DataFrame:
        return pd.read_parquet(self.folder / DOCUMENTS)


def open_text(config: LanguageConfig) -> StoredText:
    """Return the text of a configuration, in the state that `revision` names.

    Without a revision it is the state that the files or the hub have now. `StoredText.config` has
    the revision filled in.

    Raises:
        ConfigError: Says what is wrong with the text, or that it has changed.
        HubError: Says that it cannot be reached.
    """
    check(bool(config.text), f"task {config.name!r} has no instances to draw: it names no text, "
          f"like runs that were imported; expected {HOW}")
    folder = known(config)
    if folder is None:
        source = source_of(config)
        full = replace(config, revision=source.revision)

        def write(path: Path) -> None:
            with replace_folder(path, overwrite=True, marker=MARKER) as temporary:
                write_excerpts(temporary, full, source)

        folder = made_once(excerpts_folder(full), write)
    return StoredText(folder, config)


def source_of(config: LanguageConfig) -> Source:
    """Return where the text can be read in full; `ConfigError` where its revision is another."""
    path = Path(config.text).expanduser()
    check(path.exists() or re.fullmatch(ON_THE_HUB, config.text, re.ASCII) is not None,
          f"task.text is {config.text!r}, which does not exist; expected {HOW}")
    source = LocalText(config) if path.exists() and not _is_large(path) else HubText(config)
    check(config.revision in ("", source.revision), f"task.text {config.text!r} is of revision "
          f"{source.revision!r} now; expected {config.revision!r}: the text or its tokenizer has "
          "changed since training began")
    return source


def _is_large(path: Path) -> bool:
    """Whether a folder of tables is too large for its tokens to be kept, like one on the hub."""
    if not path.is_dir():
        return False
    files = text_files(path)
    return (all(file.suffix in TABLES for file in files)
            and sum(file.stat().st_size for file in files) > STREAMED)


def write_excerpts(folder: Path, config: LanguageConfig, source: Source) -> None:
    """Write excerpts of a text into an empty folder."""
    excerpts = source.excerpts()
    tables = [excerpt.documents.assign(split=split) for split, excerpt in excerpts.items()]
    arrays = {}
    for split, excerpt in excerpts.items():
        arrays[f"{split}.tokens"] = excerpt.tokens.numpy().astype(
            integer_type(source.tokenizer.n_tokens))
        arrays[f"{split}.document"] = excerpt.document.numpy().astype(
            integer_type(len(excerpt.documents)))
    write_tensors(folder / EXCERPTS, arrays)
    with replace_file(folder / DOCUMENTS) as temporary:
        pd.concat(tables).to_parquet(temporary, index=False)
    write_text(folder / FILE, source.tokenizer.to_json())
    write_json(folder / MARKER, {
        **header(FORMAT), "provenance": software(), "text": to_dict(config),
        "about": dict(source.about), "end": source.tokenizer.end_token,
        "splits": list(excerpts), "sha256": checksums(folder, FILES)})


def read_description(folder: Path) -> dict[str, Any]:
    """Return what `text.json` says; `ArtifactError` where it or a file beside it is damaged."""
    path = folder / MARKER
    described = read_checked(path, FORMAT, KEYS, "text", FILES)
    for key, value, valid in (
        ("splits", described["splits"], isinstance(described["splits"], list)
         and all(split in SPLITS for split in described["splits"])),
        ("end", described["end"], isinstance(described["end"], str)),
        ("text.revision", described["text"].get("revision"),
         isinstance(described["text"].get("revision"), str)),
    ):
        check(valid, f"{path} has {key} {value!r}; expected what a text was made from",
              ArtifactError)
    return described
