"""Documents one after the other, each ended: tokens on disk, and excerpts to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, check
from latentcode.files.migrations import header, upgrade
from latentcode.files.storage import read_json, write_json
from latentcode.tasks.text.data import TOKEN_COLUMNS, Excerpts, Tokenizer
from latentcode.tasks.text.documents import Document

FORMAT = "latentcode.tokens"
TOKENS, DOCUMENTS, MARKER = "tokens.bin", "documents.parquet", "tokens.json"
AT_ONCE = 256
"""Documents that are given to the tokenizer together."""
EXCERPT = 2**18
"""Tokens of a split that are kept to look at, about."""


def tokenized(
    documents: Iterable[Document], tokenizer: Tokenizer
) -> Iterator[tuple[Document, np.ndarray]]:
    """Return documents with their ids, the last of which ends them."""
    rest = iter(documents)
    while batch := list(islice(rest, AT_ONCE)):
        for document, ids in zip(batch, tokenizer.encode([d.text for d in batch]), strict=True):
            ids.append(tokenizer.end)
            yield document, np.array(ids, integer_type(tokenizer.n_tokens))


def integer_type(n: int) -> np.dtype:
    """Return the smallest type of numbers below n that safetensors and numpy share."""
    return np.dtype("<u2" if n <= 2**16 else "<u4")


@dataclass(frozen=True)
class TokenStore:
    """The tokens of many documents on disk, of which what is used is read when it is used.

    tokens     [n], all documents one after the other
    starts     int64 [D + 1], where each begins; the last is n
    documents  a row each: `TOKEN_COLUMNS`
    """

    tokens: np.ndarray
    starts: np.ndarray
    documents: pd.DataFrame

    @staticmethod
    def write(folder: Path, documents: Iterable[Document], tokenizer: Tokenizer) -> None:
        """Write the files of a store into an empty folder."""
        rows, sizes = [], []
        with (folder / TOKENS).open("wb") as file:
            for document, ids in tokenized(documents, tokenizer):
                file.write(ids.data)
                rows.append(tuple(getattr(document, column) for column in TOKEN_COLUMNS))
                sizes.append(len(ids))
        table = pd.DataFrame(rows, columns=list(TOKEN_COLUMNS)).assign(n_tokens=sizes)
        table.to_parquet(folder / DOCUMENTS, index=False)
        write_json(folder / MARKER, {**header(FORMAT), "n_tokens": sum(sizes),
                                     "type": integer_type(tokenizer.n_tokens).str})

    @classmethod
    def open(cls, folder: Path) -> TokenStore:
        """Map the files of a store; `ArtifactError` where they are not those that were written."""
        known = upgrade(read_json(folder / MARKER), FORMAT, folder / MARKER)
        documents = pd.read_parquet(folder / DOCUMENTS)
        starts = np.concatenate([[0], documents.pop("n_tokens").to_numpy(np.int64).cumsum()])
        tokens = np.memmap(folder / TOKENS, known["type"], mode="r")
        check(len(tokens) == known["n_tokens"] == starts[-1], f"{folder / TOKENS} holds "
              f"{len(tokens)} tokens; expected {known['n_tokens']}", ArtifactError)
        return cls(tokens, starts, documents)

    def __getitem__(self, document: int) -> np.ndarray:
        return self.tokens[self.starts[document]:self.starts[document + 1]]

    def join(self, documents: np.ndarray) -> np.ndarray:
        """Return the tokens of documents, one after the other."""
        starts, sizes = self.starts[documents], self.starts[documents + 1] - self.starts[documents]
        before = np.repeat(starts - np.concatenate([[0], sizes.cumsum()[:-1]]), sizes)
        return self.tokens[before + np.arange(sizes.sum())]


def excerpts_of(
    documents: Iterable[tuple[Document, np.ndarray]], n_tokens: int, most: int = EXCERPT
) -> Excerpts | None:
    """Pack the first documents, about `most` tokens, into sequences of n_tokens + 1.

    None where they are not enough for one sequence.
    """
    rows, parts, total = [], [], 0
    for document, ids in documents:
        rows.append(tuple(getattr(document, column) for column in TOKEN_COLUMNS))
        parts.append(ids[:most - total])
        total += len(parts[-1])
        if total >= most:
            break
    n = (total - 1) // n_tokens
    if n < 1:
        return None
    tokens = np.concatenate(parts).astype(np.int64)
    rows_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    place = np.arange(n)[:, None] * n_tokens + np.arange(n_tokens + 1)
    return Excerpts(torch.from_numpy(tokens[place]), torch.from_numpy(rows_of[place]),
                    pd.DataFrame(rows, columns=list(TOKEN_COLUMNS)))


def check_excerpts(
    found: Mapping[str, Excerpts | None], config: LanguageConfig
) -> dict[str, Excerpts]:
    """Return the splits that there are; `ConfigError` where one that is needed has too little text.

    Without sources of its own, `ood` is left out where there are not enough documents.
    """
    for split in ("train", "test", *(("ood",) if config.held_out_sources else ())):
        check(found[split] is not None, f"task.text {config.text!r} has too little text for split "
              f"{split}; expected at least {config.n_tokens + 1:,} tokens in its documents, one "
              f"sequence of task.n_tokens = {config.n_tokens:,} and the token that follows it")
    return {split: excerpt for split, excerpt in found.items() if excerpt is not None}


def check_same_text(cursor: Mapping[str, Any], revision: str) -> None:
    """Raise `ArtifactError` for the cursor of another text."""
    found = cursor.get("revision")
    check(found == revision, f"training stopped in the text of revision {found!r}; it is "
          f"{revision!r} now: expected the same text to go on with", ArtifactError)
