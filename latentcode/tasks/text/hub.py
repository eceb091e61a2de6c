"""Text of a dataset of the Hugging Face hub, read as it streams in; or of a folder laid out so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentcode.config import LanguageConfig
from latentcode.errors import check
from latentcode.tasks.text.documents import Document, about_packages, as_document, digest_of_files
from latentcode.tasks.text.failures import one_sentence
from latentcode.tasks.text.shards import START, Place, ShardStream
from latentcode.tasks.text.source import AT_ONCE, Source, Tokenized, part_of, tokenized

if TYPE_CHECKING:
    import datasets

HELD_OUT = 100
"""Where a dataset has neither of `HELD_OUT_SPLITS`: of so many documents, one is held out as
`test`, and one as `ood`."""
HELD_OUT_SPLITS = ("validation", "test")
SCANNED = 100_000
"""Documents, the first ones, among which excerpts are looked for."""


class HubText(Source):
    """The text of a dataset, or of a folder of tables that is read like one.

    `HubError` says that the dataset cannot be reached, `ConfigError` what in it cannot be used.
    """

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__(config)
        self.commit = config.revision.partition("-")[0] or _commit_of(config.text)
        self.state, self.called = self.commit, (config.text, self.commit, config.subset)

    @property
    def about(self) -> Mapping[str, Any]:
        """What the dataset says of itself."""
        return about_packages(Path(self.config.text)) or {
            "dataset": self.config.text, "subset": self.config.subset, "commit": self.commit,
            "licence": self._builder.info.license or "see its page"}

    def documents(self, split: str) -> Iterator[Document]:
        return self._of_split(split, None)

    def sample(self, split: str) -> Tokenized:
        return tokenized(self._of_split(split, SCANNED), self.tokenizer)

    def stream(self, seed: int) -> ShardStream:
        """Return what is trained on: the dataset in its order, sequences permuted in shards."""
        return ShardStream(self.token_batches, self.config.n_tokens, seed, self.revision)

    def token_batches(self, place: Place) -> Iterator[tuple[Place, np.ndarray]]:
        """Return the training tokens from a place on, without end, some documents at a time.

        Each with the place that it begins at: what follows a place is the same in any process.
        """
        while True:
            dataset, whole, n_tokens = self._open("train"), place["documents"] == 0, 0
            if place["state"] is not None:
                dataset.load_state_dict(dict(place["state"]))
            rows = self._rows(dataset)
            while batch := list(islice(rows, AT_ONCE)):
                documents = [d for d, part in self._sorted(batch, "train", place["documents"])
                             if part == "train"]
                tokens = [ids for _, ids in tokenized(documents, self.tokenizer)]
                n_tokens += sum(map(len, tokens))
                if tokens:
                    yield place, np.concatenate(tokens)
                place = {"epoch": place["epoch"], "state": dataset.state_dict(),
                         "documents": place["documents"] + len(batch)}
            check(n_tokens > 0 or not whole, f"dataset {self.config.text!r} has no text to train "
                  f"on in column {self.config.column!r}")
            place = {**START, "epoch": place["epoch"] + 1}

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

    def _open(self, split: str) -> datasets.IterableDataset:
        """Return a split of the dataset at its beginning."""
        check(split in self._split_names, f"dataset {self.config.text!r} has splits "
              f"{', '.join(self._split_names)}; expected {split!r} among them")
        with one_sentence(self.config.text):
            found: Any = self._builder.as_streaming_dataset(split=split)
            return found

    def _rows(self, dataset: datasets.IterableDataset) -> Iterator[dict[str, Any]]:
        rows = iter(dataset)
        while True:
            with one_sentence(self.config.text):
                row = next(rows, None)
            if row is None:
                return
            check(self.config.column in row, f"dataset {self.config.text!r} has columns "
                  f"{', '.join(row)}; expected {self.config.column!r} (task.column) among them")
            yield row

    def _of_split(self, split: str, most: int | None) -> Iterator[Document]:
        """Return the documents of a split of ours, looked for among so many of the dataset's."""
        held_out = self._held_out_split or "train"
        places = {"train": {"train"}, "test": {held_out},
                  "ood": {held_out, "train"} if self.config.held_out_sources else {held_out}}
        for name in sorted(places[split]):
            for document, part in islice(self._sorted(
                    self._rows(self._open(name)), name, 0), most):
                if part == split:
                    yield document

    def _sorted(
        self, rows: Iterable[dict[str, Any]], split: str, first: int
    ) -> Iterator[tuple[Document, str]]:
        """Return rows as documents, the first of which has a number, with the split of each."""
        apart = self.config.held_out_sources
        every = 0 if self._held_out_split else HELD_OUT
        if split != "train":
            every = 1 if apart else 2
        for number, row in enumerate(rows, first):
            for document in as_document(row, self.config.column, f"{split}#{number}"):
                yield document, part_of(document.source, number, apart, every)


def _commit_of(name: str) -> str:
    """Return the newest commit of a dataset; of a folder, the digest of its files."""
    if Path(name).expanduser().exists():
        return digest_of_files(Path(name).expanduser())
    from huggingface_hub import HfApi

    with one_sentence(name):
        return str(HfApi().dataset_info(name).sha)
