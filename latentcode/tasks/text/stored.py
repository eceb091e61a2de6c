"""Excerpts of a text and its tokenizer as a folder, which is kept with a run.

    text.json             what it was made from, revision, end of a document, checksums
    tokenizer.json        as the library tokenizers writes it
    excerpts.safetensors  `split.tokens` and `split.document`, [N, T + 1]
    documents.parquet     `split`, and `TOKEN_COLUMNS`
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.config import LanguageConfig, to_dict
from latentcode.errors import ArtifactError, check
from latentcode.files.provenance import header, read_checked, software
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
from latentcode.tasks.text.sources import (
    SPLITS,
    TABLES,
    HubText,
    LocalText,
    Source,
    text_files,
)
from latentcode.tasks.text.streams import TOKEN_COLUMNS, Excerpts, Stream, integer_type
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
        arrays = read_tensors(self.folder / EXCERPTS)
        tokens, document = (torch.from_numpy(arrays[f"{split}.{name}"].astype(np.int64))
                            for name in ("tokens", "document"))
        check(tokens.shape[1] == self.config.n_tokens + 1, f"{self.folder / EXCERPTS} has "
              f"sequences of {tokens.shape[1]} tokens; expected {self.config.n_tokens + 1}, one "
              "more than task.n_tokens", ArtifactError)
        documents = pd.read_parquet(self.folder / DOCUMENTS).query("split == @split")
        return Excerpts(tokens, document, documents[list(TOKEN_COLUMNS)].reset_index(drop=True))

    def stream(self, seed: int) -> Stream:
        return source_of(self.config).stream(seed)


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
        folder = made_once(
            excerpts_folder(full), lambda path: write_excerpts(path, full, source))
    return StoredText(folder, config)


def source_of(config: LanguageConfig) -> Source:
    """Return where the text can be read in full; `ConfigError` where its revision is another."""
    path = Path(config.text).expanduser()
    check(path.exists() or re.fullmatch(ON_THE_HUB, config.text, re.ASCII) is not None,
          f"task.text is {config.text!r}, which does not exist; expected {HOW}")
    is_streamed = not path.exists()
    if path.is_dir():
        files = text_files(path).values()
        is_streamed = (all(file.suffix in TABLES for file in files)
                       and sum(file.stat().st_size for file in files) > STREAMED)
    source = HubText(config) if is_streamed else LocalText(config)
    check(config.revision in ("", source.revision), f"task.text {config.text!r} is of revision "
          f"{source.revision!r} now; expected {config.revision!r}: the text or its tokenizer has "
          "changed since training began")
    return source


def write_excerpts(path: Path, config: LanguageConfig, source: Source) -> None:
    """Write the folder of the excerpts of a text."""
    splits = source.excerpts()
    arrays, tables = {}, []
    for split, excerpts in splits.items():
        arrays[f"{split}.tokens"] = excerpts.tokens.numpy().astype(
            integer_type(source.tokenizer.n_tokens))
        arrays[f"{split}.document"] = excerpts.document.numpy().astype(
            integer_type(len(excerpts.documents)))
        tables.append(excerpts.documents.assign(split=split))
    with replace_folder(path, overwrite=True, marker=MARKER) as folder:
        write_tensors(folder / EXCERPTS, arrays)
        with replace_file(folder / DOCUMENTS) as temporary:
            pd.concat(tables).to_parquet(temporary, index=False)
        write_text(folder / FILE, source.tokenizer.to_json())
        write_json(folder / MARKER, {
            **header(FORMAT), "provenance": software(), "text": to_dict(config),
            "about": dict(source.about), "end": source.tokenizer.end_token,
            "splits": list(splits), "sha256": checksums(folder, FILES)})


def read_description(folder: Path) -> dict[str, Any]:
    """Return the contents of `text.json`; `ArtifactError` where it or a file beside it is damaged.
    """
    path = folder / MARKER
    described = read_checked(path, FORMAT, KEYS, "text", FILES)
    splits, end, revision = (
        described["splits"], described["end"], described["text"].get("revision"))
    for key, value, is_valid in (
        ("splits", splits, isinstance(splits, list) and all(split in SPLITS for split in splits)),
        ("end", end, isinstance(end, str)),
        ("text.revision", revision, isinstance(revision, str)),
    ):
        check(is_valid, f"{path} has {key} {value!r}; expected what a text was made from",
              ArtifactError)
    return described
