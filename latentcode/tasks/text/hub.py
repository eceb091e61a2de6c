"""Text of a dataset of the Hugging Face hub, read as it streams in; or of a folder laid out so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, check
from latentcode.tasks.text.documents import Document, about_packages, as_document, digest_of_files
from latentcode.tasks.text.failures import one_sentence
from latentcode.tasks.text.source import (
    AT_ONCE,
    Source,
    Tokenized,
    check_same_text,
    encode,
    part_of,
    tokenized,
)

if TYPE_CHECKING:
    import datasets

HELD_OUT = 100
"""Where a dataset has neither of `HELD_OUT_SPLITS`: of so many documents, one is held out as
`test`, and one as `ood`."""
HELD_OUT_SPLITS = ("validation", "test")
SCANNED = 100_000
"""Documents, the first ones, among which excerpts are looked for."""
SHARD = 2**20
"""Tokens, about, within which sequences are permuted; two of these are in memory."""
Place = Mapping[str, Any]
"""Where a shard begins, as plain JSON: `epoch`, `state` of the dataset, and `used`, the tokens of
the next document that belong to the shard before."""
START: Place = {"epoch": 0, "state": None, "used": 0}


class HubText(Source):
    """The text of a dataset, or of a folder of tables that is read like one.

    `HubError` says that the dataset cannot be reached, `ConfigError` what in it cannot be used.
    """

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__(config)
        self.commit = config.revision.partition("-")[0] or _commit_of(config.text)
        self.state, self.called = self.commit, (config.text, self.commit, config.subset)
        self.about = about_packages(Path(config.text)) or {
            "dataset": config.text, "subset": config.subset, "commit": self.commit,
            "licence": self._builder.info.license or "see its page"}

    def documents(self, split: str, most: int | None = None) -> Iterator[Document]:
        held_out = self._held_out_split or "train"
        places = {"train": {"train"}, "test": {held_out},
                  "ood": {held_out, "train"} if self.config.held_out_sources else {held_out}}
        for name in sorted(places[split]):
            for row in _read(self._rows(name, split, most), self.config.text):
                yield Document(row["text"], row["name"], row["source"], row["kind"])

    def sample(self, split: str) -> Tokenized:
        return tokenized(self.documents(split, SCANNED), self.tokenizer)

    def stream(self, seed: int) -> ShardStream:
        """Return what is trained on: the dataset in its order, sequences permuted in shards."""
        rows = self._rows("train", "train").map(
            lambda texts: {"ids": encode(texts, self.tokenizer)}, input_columns="text",
            batched=True, batch_size=AT_ONCE)
        return ShardStream(rows, self.config, seed, self.revision)

    @cached_property
    def _builder(self) -> datasets.DatasetBuilder:
        import datasets

        name, subset = self.config.text, self.config.subset or None
        with one_sentence(name):
            if Path(name).expanduser().exists():
                return datasets.load_dataset_builder(str(Path(name).expanduser()), subset)
            return datasets.load_dataset_builder(name, subset, revision=self.commit)

    @cached_property
    def _split_names(self) -> list[str]:
        files = self._builder.config.data_files
        return [str(split) for split in (files or self._builder.info.splits or ())]

    @cached_property
    def _held_out_split(self) -> str | None:
        return next((split for split in HELD_OUT_SPLITS if split in self._split_names), None)

    def _rows(self, name: str, split: str, most: int | None = None) -> datasets.IterableDataset:
        """Return the documents of a split of ours in a split of the dataset.

        Its rows have what a `Document` has. `most` of the rows of the dataset are looked at.
        """
        check(name in self._split_names, f"dataset {self.config.text!r} has splits "
              f"{', '.join(self._split_names)}; expected {name!r} among them")
        apart, column = self.config.held_out_sources, self.config.column
        every = 0 if self._held_out_split else HELD_OUT
        if name != "train":
            every = 1 if apart else 2

        def read(row: dict[str, Any], number: int) -> dict[str, Any]:
            document = as_document(row, column, f"{name}#{number}") or Document("", "")
            part = part_of(document.source, number, apart, every)
            return {**asdict(document), "part": part if document.text else ""}

        with one_sentence(self.config.text):
            rows: Any = self._builder.as_streaming_dataset(split=name)
            return (rows if most is None else rows.take(most)).map(read, with_indices=True).filter(
                lambda part: part == split, input_columns="part")


class ShardStream:
    """The documents of a dataset in their order, epoch after epoch; see the protocol `Stream`.

    Shard s holds S successive sequences of the packed text, which are read in an order that
    (seed, s) determines. One shard is in memory, and the next is read meanwhile. A shard is read
    from the newest known place at which one begins: these are found in reading, and are in
    checkpoints.

    Args:
        rows: Documents with their `ids`; `state_dict` says where the next one begins.
        config: Of the text.
        seed: Of the order.
        revision: Of the text.
    """

    def __init__(self, rows: Any, config: LanguageConfig, seed: int, revision: str) -> None:
        self.rows, self.config, self.n_tokens = rows, config, config.n_tokens
        self.seed, self.revision = seed, revision
        self.per_shard = max(1, SHARD // self.n_tokens)
        self.step = self.per_shard * self.n_tokens
        """Tokens from the beginning of one shard to that of the next, which share one."""
        self._beginning = rows.state_dict()
        self._places: dict[int, Place] = {0: START}
        self._documents: tuple[int, Iterator[tuple[Place, np.ndarray]]] | None = None
        self._open: tuple[int, np.ndarray] = -1, np.zeros(0)
        self._next: tuple[int, Future[np.ndarray]] | None = None
        self._reader = ThreadPoolExecutor(1, "next shard")

    def __getitem__(self, sequences: slice) -> Int[Tensor, "n S"]:
        wanted = np.arange(sequences.start, sequences.stop)
        parts = []
        for shard in np.unique(wanted // self.per_shard).tolist():
            order = np.random.default_rng([self.seed, shard]).permutation(self.per_shard)
            place = order[wanted[wanted // self.per_shard == shard] % self.per_shard]
            parts.append(self._shard(shard)[
                place[:, None] * self.n_tokens + np.arange(self.n_tokens + 1)])
        return torch.from_numpy(np.concatenate(parts).astype(np.int64))

    def cursor(self, sequence: int) -> Mapping[str, Any]:
        """Return the newest known place at which a shard begins, up to that of a sequence."""
        shard = self._known(sequence // self.per_shard)
        return {"revision": self.revision, "step": self.step, "shard": shard,
                "place": self._places[shard]}

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        check_same_text(cursor, self.revision)
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

    def _shard(self, shard: int) -> np.ndarray:
        """Return the tokens of a shard; the next one is then read in the background."""
        if self._open[0] != shard:
            pending, self._next = self._next, None
            # One shard is read at a time: they share the dataset.
            tokens = pending[1].result() if pending else None
            if pending is None or pending[0] != shard:
                tokens = self._read(shard)
            assert tokens is not None
            self._open = shard, tokens
            self._next = shard + 1, self._reader.submit(self._read, shard + 1)
        return self._open[1]

    def _read(self, shard: int) -> np.ndarray:
        number, documents = self._documents or (-1, iter(()))
        self._documents = None  # should reading fail, it begins anew
        known = self._known(shard)
        if not known <= number <= shard:
            number, documents = known, self._documents_from(self._places[known])
        while True:
            parts, missing = [], self.step + 1
            while missing:
                place, ids = next(documents)
                parts.append(ids[place["used"]:place["used"] + missing])
                missing -= len(parts[-1])
            # The last token of a shard is the first one of the next.
            place = {**place, "used": place["used"] + len(parts[-1]) - 1}
            documents = chain([(place, ids)], documents)
            number += 1
            self._places[number] = place
            if number > shard:
                self._documents = number, documents
                return np.concatenate(parts)

    def _documents_from(self, place: Place) -> Iterator[tuple[Place, np.ndarray]]:
        """Return the ids of every document from a place on, without end, each with its place."""
        while True:
            whole, n_tokens = place["state"] is None, 0
            self.rows.load_state_dict(self._beginning if whole else place["state"])
            for row in _read(self.rows, self.config.text):
                n_tokens += len(row["ids"])
                yield place, np.asarray(row["ids"])
                place = {"epoch": place["epoch"], "state": self.rows.state_dict(), "used": 0}
            check(n_tokens > 0 or not whole, f"dataset {self.config.text!r} has no text to train "
                  f"on in column {self.config.column!r}")
            place = {**START, "epoch": place["epoch"] + 1}


def _read(rows: datasets.IterableDataset, name: str) -> Iterator[dict[str, Any]]:
    """Return rows as they are read, errors in one sentence."""
    with one_sentence(name):
        iterator = iter(rows)
    while True:
        with one_sentence(name):
            row = next(iterator, None)
        if row is None:
            return
        yield row


def _commit_of(name: str) -> str:
    """Return the newest commit of a dataset; of a folder, the digest of its files."""
    if Path(name).expanduser().exists():
        return digest_of_files(Path(name).expanduser())
    from huggingface_hub import HfApi

    with one_sentence(name):
        return str(HfApi().dataset_info(name).sha)
