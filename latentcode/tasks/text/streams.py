"""Documents as sequences of tokens: excerpts to look at, and the streams that are trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, check
from latentcode.files.storage import replace_file
from latentcode.tasks.base import Batch
from latentcode.tasks.text.cache import cache_folder, made_once
from latentcode.tasks.text.tokenizer import Tokenizer, one_sentence

if TYPE_CHECKING:
    import datasets

TOKEN_COLUMNS = ("name", "source", "kind")
"""Columns of `Excerpts.documents`: path, address or number of a document; the package, folder or
column it comes from; and the language that it is in, such as `py` or `md`, empty if unknown."""
AT_ONCE = 256
"""Documents that are given to the tokenizer together."""
EXCERPT = 2**18
"""Tokens of a split that are kept to look at, about."""
SHARD = 2**20
"""Tokens, about, within which sequences are permuted; two of these are in memory."""
Place = Mapping[str, Any]
"""Where a shard begins, as plain JSON: `epoch`, `state` of the dataset, and `used`, the tokens of
the next document that belong to the shard before."""
START: Place = {"epoch": 0, "state": None, "used": 0}


@dataclass(frozen=True)
class Document:
    """One document, with its `TOKEN_COLUMNS`."""

    text: str
    name: str
    source: str = ""
    kind: str = ""


Tokenized = Iterator[tuple[Document, np.ndarray]]
"""Documents with their ids, the last of which ends them."""


def tokenized(documents: Iterable[Document], tokenizer: Tokenizer) -> Tokenized:
    """Tokenize documents, `AT_ONCE` together."""
    rest = iter(documents)
    while batch := list(islice(rest, AT_ONCE)):
        yield from zip(batch, encode([d.text for d in batch], tokenizer), strict=True)


def encode(texts: list[str], tokenizer: Tokenizer) -> list[np.ndarray]:
    """Return the ids of every text, with the one that ends it."""
    dtype = integer_type(tokenizer.n_tokens)
    return [np.array([*ids, tokenizer.end], dtype) for ids in tokenizer.encode(texts)]


def integer_type(n: int) -> np.dtype:
    """Return the smallest type of numbers below n that safetensors, Arrow and numpy share."""
    return np.dtype("<u2" if n <= 2**16 else "<u4")


@dataclass(frozen=True)
class Excerpts:
    """N excerpts of the packed text of one split: documents one after the other, each ended.

    tokens     int64 [N, T + 1]: inputs are all but the last, targets all but the first
    document   int64 [N, T + 1], the row of `documents` that each token belongs to
    documents  one row per document, with `TOKEN_COLUMNS`
    """

    tokens: Int[Tensor, "N S"]
    document: Int[Tensor, "N S"]
    documents: pd.DataFrame


def pack(documents: Tokenized, n_tokens: int) -> Excerpts | None:
    """Pack the first documents, about `EXCERPT` tokens, into sequences of n_tokens + 1; None where
    they are not enough for one."""
    labels, parts, total = [], [], 0
    for document, ids in documents:
        labels.append([getattr(document, column) for column in TOKEN_COLUMNS])
        parts.append(ids[:EXCERPT - total])
        total += len(parts[-1])
        if total >= EXCERPT:
            break
    n = (total - 1) // n_tokens
    if n < 1:
        return None
    tokens = np.concatenate(parts).astype(np.int64)
    numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    place = np.arange(n)[:, None] * n_tokens + np.arange(n_tokens + 1)
    return Excerpts(torch.from_numpy(tokens[place]), torch.from_numpy(numbers[place]),
                    pd.DataFrame(labels, columns=list(TOKEN_COLUMNS)))


def kept_tokens(documents: Iterable[Document], tokenizer: Tokenizer, key: str) -> datasets.Dataset:
    """Return documents as `ids` and `TOKEN_COLUMNS`, mapped from the cache, in the format `arrow`.

    They are read and tokenized where the cache has none of this key yet.
    """
    import datasets
    from datasets.arrow_writer import ArrowWriter

    ids = datasets.List(datasets.Value(integer_type(tokenizer.n_tokens).name))
    features = datasets.Features({
        **{name: datasets.Value("string") for name in TOKEN_COLUMNS}, "ids": ids})

    def write(path: Path) -> None:
        with (replace_file(path) as temporary,
              ArrowWriter(path=str(temporary), features=features) as writer):
            for document, numbers in tokenized(documents, tokenizer):
                labels = {name: getattr(document, name) for name in TOKEN_COLUMNS}
                writer.write({**labels, "ids": numbers})
            writer.finalize()

    file = made_once(cache_folder("tokens", f"{key}.arrow"), write)
    return datasets.Dataset.from_file(str(file)).with_format("arrow")


def token_ids(tokens: datasets.Dataset, rows: list[int]) -> np.ndarray:
    """Return the `ids` of rows of a dataset in the format `arrow`, one after the other."""
    ids: np.ndarray = tokens[rows]["ids"].combine_chunks().flatten().to_numpy()
    return ids


class Stream(ABC):
    """The text that is trained on, packed, in an order that a seed determines.

    Sequence i depends on (text, tokenizer, T, seed, i) alone, however it is read. See `InOrder`.
    """

    revision: str = ""
    """Of the text."""

    @abstractmethod
    def __getitem__(self, sequences: slice) -> Int[Tensor, "n S"]:
        """Return sequences first to last - 1 as int64 [n, T + 1], on the CPU."""

    def read(self, first: int, n: int, device: torch.device) -> Batch:
        """Return sequences `first` to `first` + n - 1 as a batch."""
        tokens = self[first:first + n].to(device)
        return Batch(tokens[:, :-1], tokens[:, 1:], torch.zeros_like(tokens[:, 0]))

    def cursor(self, sequence: int) -> Mapping[str, Any]:
        """Return what a later process needs to go on at a sequence (`InOrder.cursor`)."""
        return {"revision": self.revision}

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        """Take the cursor of another process; `ArtifactError` for one of another text."""
        stopped = cursor.get("revision")
        check(stopped == self.revision, f"training stopped in the text of revision {stopped!r}; it "
              f"is {self.revision!r} now: expected the same text to go on with", ArtifactError)


class LocalStream(Stream):
    """All documents, permuted by (seed, epoch), epoch after epoch.

    Args:
        tokens: The `ids` of all documents, in the format `arrow`.
        documents: Those that are trained on.
        n_tokens: Length of a sequence, which has one token more.
        seed: Of the order.
        revision: Of the text.
    """

    def __init__(
        self, tokens: datasets.Dataset, documents: np.ndarray, n_tokens: int, seed: int,
        revision: str,
    ) -> None:
        import pyarrow.compute as pc

        self.tokens, self.documents, self.n_tokens = tokens, documents, n_tokens
        self.seed, self.revision = seed, revision
        self.sizes = pc.list_value_length(tokens.data.column("ids")).to_numpy()[documents]
        self.per_epoch = int(self.sizes.sum())
        self._order: tuple[int, np.ndarray, np.ndarray] | None = None

    def __getitem__(self, sequences: slice) -> Int[Tensor, "n S"]:
        parts = []
        start, stop = sequences.start * self.n_tokens, sequences.stop * self.n_tokens + 1
        while start < stop:
            epoch, place = divmod(start, self.per_epoch)
            until = min(place + stop - start, self.per_epoch)
            parts.append(self._between(epoch, place, until))
            start += until - place
        tokens = torch.from_numpy(np.concatenate(parts).astype(np.int64))
        return tokens.unfold(0, self.n_tokens + 1, self.n_tokens).contiguous()

    def _between(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """Return tokens start to stop - 1 of an epoch."""
        if self._order is None or self._order[0] != epoch:
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.documents))
            self._order = epoch, order, self.sizes[order].cumsum()
        _, order, ends = self._order
        first, last = np.searchsorted(ends, (start, stop - 1), side="right")
        skipped = start - (ends[first] - self.sizes[order[first]])
        tokens = token_ids(self.tokens, self.documents[order[first:last + 1]].tolist())
        return tokens[skipped:skipped + stop - start]


class ShardStream(Stream):
    """The documents of a dataset in their order, epoch after epoch.

    Shard s holds S successive sequences of the packed text, which are read in an order that
    (seed, s) determines. One shard is in memory, and the next is read meanwhile. A shard is read
    from the newest known place at which one begins: these are recorded in reading, and are in
    checkpoints. `rows.state_dict` says where the next document begins.
    """

    def __init__(
        self, rows: datasets.IterableDataset, tokenizer: Tokenizer, config: LanguageConfig,
        seed: int, revision: str,
    ) -> None:
        self.rows = rows.map(lambda texts: {"ids": encode(texts, tokenizer)},
                             input_columns="text", batched=True, batch_size=AT_ONCE)
        self.config, self.n_tokens = config, config.n_tokens
        self.seed, self.revision = seed, revision
        self.per_shard = max(1, SHARD // self.n_tokens)
        self.step = self.per_shard * self.n_tokens
        """Tokens from the beginning of one shard to that of the next, which share one."""
        self._beginning = self.rows.state_dict()
        self._places: dict[int, Place] = {0: START}
        self._reading: tuple[int, Iterator[np.ndarray]] | None = None
        self._shards: dict[int, Future[np.ndarray]] = {}
        self._reader = ThreadPoolExecutor(1, "next shard")

    def __getitem__(self, sequences: slice) -> Int[Tensor, "n S"]:
        wanted = np.arange(sequences.start, sequences.stop)
        parts = []
        for shard in np.unique(wanted // self.per_shard).tolist():
            order = np.random.default_rng([self.seed, shard]).permutation(self.per_shard)
            place = order[wanted[wanted // self.per_shard == shard] % self.per_shard]
            known, self._shards = self._shards, {}  # should reading fail, it begins anew
            # The only thread reads one shard at a time: they share the dataset.
            known = {number: known.get(number) or self._reader.submit(self._read, number)
                     for number in (shard, shard + 1)}
            tokens = known[shard].result()
            self._shards = known
            parts.append(tokens[place[:, None] * self.n_tokens + np.arange(self.n_tokens + 1)])
        return torch.from_numpy(np.concatenate(parts).astype(np.int64))

    def cursor(self, sequence: int) -> Mapping[str, Any]:
        """Return the newest known place at which a shard begins, up to that of a sequence."""
        shard = self._known(sequence // self.per_shard)
        return {"revision": self.revision, "step": self.step, "shard": shard,
                "place": self._places[shard]}

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        super().go_to(cursor)
        shard, place = cursor.get("shard"), cursor.get("place")
        fits = (cursor.get("step") == self.step and type(shard) is int and shard >= 0
                and isinstance(place, dict) and set(place) == set(START))
        check(fits, f"the place in the text is {str(cursor)[:120]}; expected one of shards of "
              f"{self.step} tokens", ArtifactError)
        assert isinstance(shard, int)
        assert isinstance(place, dict)
        self._places.setdefault(shard, place)

    def _known(self, shard: int) -> int:
        """Return the newest shard up to this one whose place is known."""
        return max(known for known in list(self._places) if known <= shard)

    def _read(self, shard: int) -> np.ndarray:
        """Return the tokens of a shard, from where the last one ended if that leads to it."""
        known = self._known(shard)
        number, shards = self._reading or (-1, iter(()))
        self._reading = None
        if not known <= number <= shard:
            number, shards = known, self._shards_from(known)
        for _ in range(number, shard):
            next(shards)
        tokens = next(shards)
        self._reading = shard + 1, shards
        return tokens

    def _shards_from(self, number: int) -> Iterator[np.ndarray]:
        """Return the tokens of a shard and of those after it, and record where each begins."""
        parts, missing = [], self.step + 1
        for place, ids in self._documents_from(self._places[number]):
            used = place["used"]
            while len(ids) - used >= missing:
                parts.append(ids[used:used + missing])
                # The last token of a shard is the first one of the next.
                used += missing - 1
                number += 1
                self._places[number] = {**place, "used": used}
                yield np.concatenate(parts)
                parts, missing = [], self.step + 1
            parts.append(ids[used:])
            missing -= len(parts[-1])

    def _documents_from(self, place: Place) -> Iterator[tuple[Place, np.ndarray]]:
        """Return the ids of every document from a place on, without end, each with its place."""
        while True:
            whole, n_tokens = place["state"] is None, 0
            with one_sentence(self.config.text):
                self.rows.load_state_dict(self._beginning if whole else place["state"])
                for row in self.rows:
                    n_tokens += len(row["ids"])
                    yield place, np.asarray(row["ids"])
                    place = {"epoch": place["epoch"], "state": self.rows.state_dict(), "used": 0}
            check(n_tokens > 0 or not whole, f"dataset {self.config.text!r} has no text to train "
                  f"on in column {self.config.column!r}")
            place = {**START, "epoch": place["epoch"] + 1}
