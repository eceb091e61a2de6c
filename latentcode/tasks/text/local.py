"""Text of files on this machine: which of it is held out, and in which order it is trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from latentcode.config import LanguageConfig
from latentcode.errors import ConfigError
from latentcode.tasks.text.cache import cache_folder, digest_of, made_once
from latentcode.tasks.text.data import TOKEN_COLUMNS, Excerpts
from latentcode.tasks.text.documents import (
    Document,
    about_packages,
    digest_of_files,
    local_documents,
)
from latentcode.tasks.text.packing import (
    MARKER,
    TokenStore,
    check_excerpts,
    check_same_text,
    excerpts_of,
)
from latentcode.tasks.text.tokenizer import FileTokenizer, configured_tokenizer

HELD_OUT = 20
"""Of so many documents, one is held out as `test`, and one as `ood` where no sources are."""


class LocalText:
    """The text of a folder or file, as a configuration reads it.

    `ConfigError` says what of it cannot be used: see `local_documents`, `load_tokenizer`.
    """

    def __init__(self, config: LanguageConfig) -> None:
        self.config, self.path = config, Path(config.text).expanduser()
        self.files = digest_of_files(self.path)

    @cached_property
    def revision(self) -> str:
        """Digests of the files and of the tokenizer."""
        return f"{self.files}-{digest_of(self.tokenizer.to_json())}"

    @cached_property
    def tokenizer(self) -> FileTokenizer:
        return configured_tokenizer(
            self.config, (self.files,),
            lambda: (d.text for d, part in self._parts() if part == "train"))

    @property
    def about(self) -> Mapping[str, Any]:
        """What lies beside the files to say where they come from."""
        return about_packages(self.path)

    def excerpts(self) -> dict[str, Excerpts]:
        """Return the excerpts of every split; `ConfigError` where there is too little text."""
        found = {}
        for split in ("train", "test", "ood"):
            store, documents = self._store, self._of(split)
            order = np.random.default_rng(0).permutation(documents)
            found[split] = excerpts_of(
                ((Document("", *store.documents.loc[i, list(TOKEN_COLUMNS)]), store[i])
                 for i in order), self.config.n_tokens)
        return check_excerpts(found, self.config)

    def stream(self, seed: int) -> LocalStream:
        return LocalStream(self._store, self._of("train"), self.config.n_tokens, seed,
                           self.revision)

    @cached_property
    def _store(self) -> TokenStore:
        key = digest_of(self.revision, self.config.column)
        return TokenStore.open(made_once(
            cache_folder("tokens", key), MARKER, lambda folder: TokenStore.write(
                folder, local_documents(self.path, self.config.column), self.tokenizer)))

    def _of(self, split: str) -> np.ndarray:
        return np.flatnonzero(parts_of(self._store.documents["source"].tolist(),
                                       self.config.held_out_sources) == split)

    def _parts(self) -> Iterator[tuple[Document, str]]:
        """Return every document with the split that it belongs to."""
        # Read twice, so that a text need not fit into memory.
        sources = [d.source for d in local_documents(self.path, self.config.column)]
        return zip(local_documents(self.path, self.config.column),
                   parts_of(sources, self.config.held_out_sources), strict=True)


def parts_of(sources: list[str], held_out_sources: tuple[str, ...]) -> np.ndarray:
    """Return the split of every document, by its place and the source that it is from.

    `ConfigError` for a source that no document is from.
    """
    for source in held_out_sources:
        if source not in sources:
            known = ", ".join(sorted(set(sources) - {""})[:20]) or "no sources"
            raise ConfigError(f"task.held_out_sources names {source!r}; the text has {known}")
    held_out = np.isin(sources, held_out_sources)
    place = (~held_out).cumsum() - 1
    parts = np.full(len(sources), "train", "<U5")
    parts[place % HELD_OUT == 0] = "test"
    if not held_out_sources:
        parts[place % HELD_OUT == HELD_OUT // 2] = "ood"
    parts[held_out] = "ood"
    return parts


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
        self.sizes = (store.starts[1:] - store.starts[:-1])[documents]
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
