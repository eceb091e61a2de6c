"""Excerpts of a text and its tokenizer as a folder, which is kept with a run.

    text.json             what it was made from, revision, end of a document, checksums
    tokenizer.json        as the library tokenizers writes it
    excerpts.safetensors  `split.tokens` and `split.document`, [N, T + 1]
    documents.parquet     `split`, and `TOKEN_COLUMNS`
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.config import LanguageConfig, to_dict
from latentcode.errors import ArtifactError, check
from latentcode.files.migrations import header, read_checked
from latentcode.files.provenance import software
from latentcode.files.storage import (
    checksums,
    read_tensors,
    replace_file,
    write_json,
    write_tensors,
    write_text,
)
from latentcode.tasks.text.cache import MARKER
from latentcode.tasks.text.data import TOKEN_COLUMNS, Excerpts, Stream
from latentcode.tasks.text.source import SPLITS, Source, integer_type
from latentcode.tasks.text.tokenizer import FILE, check_vocabulary, tokenizer_from

FORMAT = "latentcode.text"
EXCERPTS, DOCUMENTS = "excerpts.safetensors", "documents.parquet"
FILES = (FILE, EXCERPTS, DOCUMENTS)
KEYS = {"format", "format_version", "provenance", "text", "about", "end", "splits", "sha256"}


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
    found = read_checked(path, FORMAT, KEYS, "text", FILES)
    for key, value, valid in (
        ("splits", found["splits"], isinstance(found["splits"], list)
         and all(split in SPLITS for split in found["splits"])),
        ("end", found["end"], isinstance(found["end"], str)),
        ("text.revision", found["text"].get("revision"),
         isinstance(found["text"].get("revision"), str)),
    ):
        check(valid, f"{path} has {key} {value!r}; expected what a text was made from",
              ArtifactError)
    return found


def check_revision(config: LanguageConfig, source: Source) -> None:
    """Raise `ConfigError` unless a source is in the state that a configuration names, if any."""
    check(config.revision in ("", source.revision), f"task.text {config.text!r} is of revision "
          f"{source.revision!r} now; expected {config.revision!r}: the text or its tokenizer has "
          "changed since training began")


class StoredText:
    """A text of which excerpts are here; its stream is read from the source, see `TextData`.

    open_source  returns the source; called when training begins

    `ArtifactError` says what is wrong with the folder, `ConfigError` that the tokenizer has more
    tokens than the configuration.
    """

    def __init__(self, folder: Path, config: LanguageConfig, open_source: Any) -> None:
        self.folder, self.config, self._open_source = folder, config, open_source
        described = read_description(folder)
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
        source: Source = self._open_source()
        check_revision(self.config, source)
        return source.stream(seed)

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return read_tensors(self.folder / EXCERPTS)

    @cached_property
    def _documents(self) -> pd.DataFrame:
        return pd.read_parquet(self.folder / DOCUMENTS)
