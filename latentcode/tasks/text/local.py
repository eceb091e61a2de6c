"""Text of files on this machine: its tokens are mapped from disk, and read in a random order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from latentcode.config import LanguageConfig
from latentcode.errors import check
from latentcode.tasks.text.cache import cache_folder, digest_of
from latentcode.tasks.text.data import TOKEN_COLUMNS
from latentcode.tasks.text.documents import (
    Document,
    about_packages,
    digest_of_files,
    local_documents,
)
from latentcode.tasks.text.failures import one_sentence
from latentcode.tasks.text.source import (
    Source,
    Tokenized,
    check_same_text,
    integer_type,
    part_of,
    tokenized,
)

if TYPE_CHECKING:
    import datasets

HELD_OUT = 20
"""Of so many documents, one is held out as `test`, and one as `ood` where no sources are."""


class LocalText(Source):
    """The text of a folder or file; `ConfigError` as in `local_documents`, `load_tokenizer`."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__(config)
        self.path = Path(config.text).expanduser()
        self.about = about_packages(self.path)
        self.state = digest_of_files(self.path)
        self.called = (self.state,)

    def documents(self, split: str) -> Iterator[Document]:
        return (document for document, part in self._with_parts(self._all()) if part == split)

    def sample(self, split: str) -> Tokenized:
        rows = self._rows
        return ((Document("", *rows.loc[i, list(TOKEN_COLUMNS)]), self._tokens[i])
                for i in np.random.default_rng(0).permutation(self._of(split)).tolist())

    def stream(self, seed: int) -> LocalStream:
        return LocalStream(self._tokens, self._of("train"), self.config.n_tokens, seed,
                           self.revision)

    @cached_property
    def _dataset(self) -> datasets.Dataset:
        """All documents as token ids, which `datasets` keeps in the cache and maps."""
        import datasets

        def rows() -> Iterator[dict[str, Any]]:
            for document, ids in tokenized(self._all(), self.tokenizer):
                yield {**{name: getattr(document, name) for name in TOKEN_COLUMNS}, "ids": ids}

        dtype = integer_type(self.tokenizer.n_tokens).name
        with one_sentence(str(self.path), "text"), _without_bars():
            return datasets.Dataset.from_generator(
                rows, cache_dir=str(cache_folder("tokens")),
                fingerprint=digest_of(self.revision, self.config.column),
                features=datasets.Features({
                    **{name: datasets.Value("string") for name in TOKEN_COLUMNS},
                    "ids": datasets.List(datasets.Value(dtype))}))

    @cached_property
    def _tokens(self) -> DocumentTokens:
        return DocumentTokens(self._dataset)

    @cached_property
    def _rows(self) -> Any:
        return self._dataset.select_columns(list(TOKEN_COLUMNS)).to_pandas()

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
        known = sorted(set(self._rows["source"]) - {""})
        for source in self.config.held_out_sources:
            check(source in known, f"task.held_out_sources names {source!r}; the text has "
                  f"{', '.join(known[:20]) or 'no sources'}")
        return np.array([i for i, (_, part) in enumerate(self._with_parts(
            self._rows.itertuples())) if part == split], dtype=np.int64)


class DocumentTokens:
    """Token ids of the documents of a dataset, read from the disk when they are used."""

    def __init__(self, dataset: datasets.Dataset) -> None:
        chunks = [chunk for chunk in dataset.data.column("ids").chunks if len(chunk)]
        self._chunks = [(chunk.offsets.to_numpy(), chunk.values.to_numpy()) for chunk in chunks]
        self._first = np.cumsum([0, *map(len, chunks)])
        self.sizes = np.concatenate([np.diff(offsets) for offsets, _ in self._chunks])

    def __getitem__(self, document: int) -> np.ndarray:
        chunk = int(np.searchsorted(self._first, document, side="right")) - 1
        offsets, values = self._chunks[chunk]
        row = document - self._first[chunk]
        return values[offsets[row]:offsets[row + 1]]


class LocalStream:
    """All documents, permuted by (seed, epoch), epoch after epoch; see the protocol `Stream`.

    Args:
        tokens: The tokens of all documents.
        documents: Those that are trained on.
        n_tokens: Length of a sequence, which has one token more.
        seed: Of the order.
        revision: Of the text.
    """

    def __init__(
        self, tokens: DocumentTokens, documents: np.ndarray, n_tokens: int, seed: int,
        revision: str,
    ) -> None:
        self.tokens, self.documents, self.n_tokens = tokens, documents, n_tokens
        self.seed, self.revision = seed, revision
        self.sizes = tokens.sizes[documents]
        self.per_epoch = int(self.sizes.sum())
        self._order: tuple[int, np.ndarray, np.ndarray] | None = None

    def __getitem__(self, sequences: slice) -> Int[Tensor, "n S"]:
        first, last = sequences.start, sequences.stop
        tokens = self._between(first * self.n_tokens, last * self.n_tokens + 1)
        packed = torch.from_numpy(tokens.astype(np.int64))
        return packed.unfold(0, self.n_tokens + 1, self.n_tokens).contiguous()

    def cursor(self, sequence: int) -> Mapping[str, Any]:
        """Any place can be reached at once: the cursor says only of which text it is."""
        return {"revision": self.revision}

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        check_same_text(cursor, self.revision)

    def _between(self, start: int, stop: int) -> np.ndarray:
        """Return tokens start to stop - 1 of the endless text."""
        parts = []
        while start < stop:
            epoch, place = divmod(start, self.per_epoch)
            order, ends = self._epoch(epoch)
            until = min(place + stop - start, self.per_epoch)
            first, last = np.searchsorted(ends, (place, until - 1), side="right")
            skipped = place - (ends[first] - self.sizes[order[first]])
            joined = np.concatenate([self.tokens[document] for document in self.documents[
                order[first:last + 1]].tolist()])
            parts.append(joined[skipped:skipped + until - place])
            start += until - place
        return np.concatenate(parts)

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the order of the documents in an epoch, and where each one ends."""
        if self._order is None or self._order[0] != epoch:
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.documents))
            self._order = epoch, order, self.sizes[order].cumsum()
        return self._order[1:]


@contextmanager
def _without_bars() -> Iterator[None]:
    """Let `datasets` show no progress, which it would call that of its split `train`."""
    import datasets

    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()
