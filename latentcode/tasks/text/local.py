"""Text of files on this machine: its tokens on disk, mapped, and trained on in a random order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, check
from latentcode.tasks.text.cache import cache_folder, digest_of, made_once
from latentcode.tasks.text.data import TOKEN_COLUMNS, Tokenizer
from latentcode.tasks.text.documents import (
    Document,
    about_packages,
    digest_of_files,
    local_documents,
)
from latentcode.tasks.text.source import (
    Source,
    Tokenized,
    check_same_text,
    integer_type,
    part_of,
    tokenized,
)

HELD_OUT = 20
"""Of so many documents, one is held out as `test`, and one as `ood` where no sources are."""
TOKENS, DOCUMENTS = "tokens.bin", "documents.parquet"


class LocalText(Source):
    """The text of a folder or file; `ConfigError` as in `local_documents`, `load_tokenizer`."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__(config)
        self.path = Path(config.text).expanduser()
        self.state = digest_of_files(self.path)
        self.called = (self.state,)

    @property
    def about(self) -> Mapping[str, Any]:
        """What lies beside the files to say where they come from."""
        return about_packages(self.path)

    def documents(self, split: str) -> Iterator[Document]:
        return (document for document, part in self._with_parts(self._all()) if part == split)

    def sample(self, split: str) -> Tokenized:
        store = self._store
        return ((Document("", *store.documents.loc[i, list(TOKEN_COLUMNS)]), store[i])
                for i in np.random.default_rng(0).permutation(self._of(split)).tolist())

    def stream(self, seed: int) -> LocalStream:
        return LocalStream(self._store, self._of("train"), self.config.n_tokens, seed,
                           self.revision)

    @cached_property
    def _store(self) -> TokenStore:
        key = digest_of(self.revision, self.config.column)
        return TokenStore.open(made_once(
            cache_folder("tokens", key), DOCUMENTS, lambda folder: TokenStore.write(
                folder, self._all(), self.tokenizer)), integer_type(self.tokenizer.n_tokens))

    def _all(self) -> Iterator[Document]:
        return local_documents(self.path, self.config.column)

    def _with_parts(self, rows: Iterable[Any]) -> Iterator[tuple[Any, str]]:
        """Return all documents, or rows that say their `source`, with the split of each."""
        apart, place = self.config.held_out_sources, 0
        for row in rows:
            yield row, part_of(row.source, place, apart, HELD_OUT)
            place += row.source not in apart

    def _of(self, split: str) -> np.ndarray:
        """Return which documents are of a split; `ConfigError` for a source that none is from."""
        documents = self._store.documents
        for source in self.config.held_out_sources:
            known = sorted(set(documents["source"]) - {""})
            check(source in known, f"task.held_out_sources names {source!r}; the text has "
                  f"{', '.join(known[:20]) or 'no sources'}")
        return np.array([i for i, (_, part) in enumerate(self._with_parts(
            documents.itertuples())) if part == split], dtype=np.int64)


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
        rows = []
        with (folder / TOKENS).open("wb") as file:
            for document, ids in tokenized(documents, tokenizer):
                file.write(ids.data)
                rows.append((*(getattr(document, name) for name in TOKEN_COLUMNS), len(ids)))
        pd.DataFrame(rows, columns=[*TOKEN_COLUMNS, "n_tokens"]).to_parquet(
            folder / DOCUMENTS, index=False)

    @classmethod
    def open(cls, folder: Path, dtype: np.dtype) -> TokenStore:
        """Map the files of a store; `ArtifactError` where they are not those that were written."""
        documents = pd.read_parquet(folder / DOCUMENTS)
        starts = np.concatenate([[0], documents.pop("n_tokens").to_numpy(np.int64).cumsum()])
        tokens = np.memmap(folder / TOKENS, dtype, mode="r")
        check(len(tokens) == starts[-1], f"{folder / TOKENS} holds {len(tokens)} tokens; expected "
              f"{starts[-1]}", ArtifactError)
        return cls(tokens, starts, documents)

    def __getitem__(self, document: int) -> np.ndarray:
        return self.tokens[self.starts[document]:self.starts[document + 1]]

    def join(self, documents: np.ndarray) -> np.ndarray:
        """Return the tokens of documents, one after the other."""
        return np.concatenate([self[document] for document in documents.tolist()])


class LocalStream:
    """All documents, permuted by (seed, epoch), epoch after epoch; see the protocol `Stream`.

    store      the tokens of all documents
    documents  those that are trained on
    """

    def __init__(
        self, store: TokenStore, documents: np.ndarray, n_tokens: int, seed: int, revision: str
    ) -> None:
        self.store, self.documents, self.n_tokens = store, documents, n_tokens
        self.seed, self.revision = seed, revision
        self.sizes = np.diff(store.starts)[documents]
        self.per_epoch = int(self.sizes.sum())
        self._order: tuple[int, np.ndarray, np.ndarray] | None = None

    def __getitem__(self, sequences: slice) -> Int[Tensor, "n S"]:
        first, last = sequences.start, sequences.stop
        tokens = self._tokens(first * self.n_tokens, last * self.n_tokens + 1)
        packed = torch.from_numpy(tokens.astype(np.int64))
        return packed.unfold(0, self.n_tokens + 1, self.n_tokens).contiguous()

    def cursor(self, sequence: int) -> Mapping[str, Any]:
        """Any place can be reached at once: the cursor says only of which text it is."""
        return {"revision": self.revision}

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        check_same_text(cursor, self.revision)

    def _tokens(self, start: int, stop: int) -> np.ndarray:
        """Return tokens start to stop - 1 of the endless text."""
        parts = []
        while start < stop:
            epoch, place = divmod(start, self.per_epoch)
            order, ends = self._epoch(epoch)
            until = min(place + stop - start, self.per_epoch)
            first, last = np.searchsorted(ends, (place, until - 1), side="right")
            skipped = place - (ends[first] - self.sizes[order[first]])
            joined = self.store.join(self.documents[order[first:last + 1]])
            parts.append(joined[skipped:skipped + until - place])
            start += until - place
        return np.concatenate(parts)

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the order of the documents in an epoch, and where each one ends."""
        if self._order is None or self._order[0] != epoch:
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.documents))
            self._order = epoch, order, self.sizes[order].cumsum()
        return self._order[1:]
