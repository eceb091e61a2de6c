"""Text of a dataset of the Hugging Face hub, read as it streams in; or of a folder laid out so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from latentcode.config import LanguageConfig
from latentcode.errors import ConfigError, HubError, LatentCodeError, check
from latentcode.tasks.text.cache import cache_folder, digest_of
from latentcode.tasks.text.data import Excerpts
from latentcode.tasks.text.documents import Document, about_packages, as_document, digest_of_files
from latentcode.tasks.text.packing import AT_ONCE, check_excerpts, excerpts_of, tokenized
from latentcode.tasks.text.tokenizer import FILE, SETTINGS, FileTokenizer, configured_tokenizer

if TYPE_CHECKING:
    import datasets

    from latentcode.tasks.text.shards import ShardStream

HELD_OUT = 100
"""Where a dataset has neither of `HELD_OUT_SPLITS`: of so many documents, one is held out as
`test`, and one as `ood`."""
HELD_OUT_SPLITS = ("validation", "test")
SCANNED = 100_000
"""Documents, the first ones, among which excerpts are looked for."""
Place = Mapping[str, Any]
"""Where reading goes on, as plain JSON: `epoch`, `documents` read in it, `state` of the dataset."""
START: Place = {"epoch": 0, "documents": 0, "state": None}


class HubText:
    """The text of a dataset, as a configuration reads it; see `stored.Source`.

    `HubError` says that the dataset cannot be reached, `ConfigError` what in it cannot be used.
    """

    def __init__(self, config: LanguageConfig) -> None:
        self.config = config
        self.commit = config.revision.partition("-")[0] or _commit_of(config.text)

    @cached_property
    def revision(self) -> str:
        """The commit, and a digest of the tokenizer."""
        return f"{self.commit}-{digest_of(self.tokenizer.to_json())}"

    @property
    def about(self) -> Mapping[str, Any]:
        """What the dataset says of itself."""
        return about_packages(Path(self.config.text)) or {
            "dataset": self.config.text, "subset": self.config.subset, "commit": self.commit,
            "licence": self._builder.info.license or "see its page"}

    @cached_property
    def tokenizer(self) -> FileTokenizer:
        """The one that is configured, or is trained on the first documents."""
        return configured_tokenizer(
            self.config, (self.config.text, self.commit, self.config.subset),
            lambda: (d.text for d, part in self._parts("train") if part == "train"))

    def excerpts(self) -> dict[str, Excerpts]:
        """Return the excerpts of every split; `ConfigError` where there is too little text."""
        held_out = self._held_out_split or "train"
        places = {"train": {"train"}, "test": {held_out},
                  "ood": {held_out, "train"} if self.config.held_out_sources else {held_out}}
        found = {}
        for part, splits in places.items():
            documents = chain.from_iterable(islice(self._parts(split), SCANNED)
                                            for split in sorted(splits))
            kept = (document for document, its_part in documents if its_part == part)
            found[part] = excerpts_of(tokenized(kept, self.tokenizer), self.config.n_tokens)
        return check_excerpts(found, self.config)

    def stream(self, seed: int) -> ShardStream:
        """Return what is trained on: the dataset in its order, sequences permuted in shards."""
        from latentcode.tasks.text.shards import ShardStream

        config = self.config
        key = digest_of(config.text, self.revision, config.subset, config.column,
                        config.held_out_sources)
        return ShardStream(self, cache_folder("shards", key), config.n_tokens, seed)

    def token_batches(self, place: Place) -> Iterator[tuple[Place, np.ndarray]]:
        """Return the training tokens from a place on, without end, some documents at a time.

        Each with the place that it begins at: what follows a place is the same in any process.
        """
        while True:
            dataset, whole, n_tokens = self._split("train"), place["documents"] == 0, 0
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
    def _held_out_split(self) -> str | None:
        return next((split for split in HELD_OUT_SPLITS if split in self._split_names), None)

    @property
    def _split_names(self) -> list[str]:
        files = self._builder.config.data_files
        return [str(split) for split in (files or self._builder.info.splits or ())]

    def _split(self, split: str) -> datasets.IterableDataset:
        names = self._split_names
        check(split in names, f"dataset {self.config.text!r} has splits {', '.join(names)}; "
              f"expected {split!r} among them")
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

    def _parts(self, split: str) -> Iterator[tuple[Document, str]]:
        """Return every document of a split of the dataset, with the split of ours."""
        rows, first = self._rows(self._split(split)), 0
        while batch := list(islice(rows, AT_ONCE)):
            yield from self._sorted(batch, split, first)
            first += len(batch)

    def _sorted(
        self, rows: list[dict[str, Any]], split: str, first: int
    ) -> Iterator[tuple[Document, str]]:
        """Return rows as documents, the first of which has a number, with the split of each."""
        apart = self.config.held_out_sources
        for number, row in enumerate(rows, first):
            for document in as_document(row, self.config.column, f"{split}#{number}"):
                if document.source in apart:
                    yield document, "ood"
                elif split != "train":
                    yield document, "test" if apart or number % 2 == 0 else "ood"
                elif self._held_out_split or number % HELD_OUT not in (0, HELD_OUT // 2):
                    yield document, "train"
                elif number % HELD_OUT == 0:
                    yield document, "test"
                else:
                    yield document, "train" if apart else "ood"


def _commit_of(name: str) -> str:
    """Return the newest commit of a dataset; of a folder, the digest of its files."""
    if Path(name).expanduser().exists():
        return digest_of_files(Path(name).expanduser())
    from huggingface_hub import HfApi

    with one_sentence(name):
        return str(HfApi().dataset_info(name).sha)


def tokenizer_files(name: str) -> tuple[Path, Path | None]:
    """Return the file of a tokenizer on the hub, and that of its settings, if it has one."""
    from huggingface_hub import HfApi, errors, hf_hub_download

    with one_sentence(name, "tokenizer", "a tokenizer.json that is here, as task.tokenizer"):
        try:
            file = Path(hf_hub_download(name, FILE, local_files_only=True))
        except errors.LocalEntryNotFoundError:
            HfApi().model_info(name)  # says at once that there is no network; a download waits
            file = Path(hf_hub_download(name, FILE))
        try:
            # Of the same commit, which the folder is named after.
            return file, Path(hf_hub_download(name, SETTINGS, revision=file.parent.name))
        except errors.EntryNotFoundError:
            return file, None


HERE = ("a folder or file of text that is here, as task.text (`latentcode zoo text packages "
        "FOLDER` writes one)")


@contextmanager
def one_sentence(name: str, what: str = "dataset", here: str = HERE) -> Iterator[None]:
    """Turn the errors of `datasets`, of the hub and of the network into `HubError`."""
    try:
        yield
    except LatentCodeError:
        raise
    except Exception as error:  # `datasets` lets out those of a dozen libraries
        from datasets.exceptions import DatasetNotFoundError
        from huggingface_hub import errors

        from latentcode.hub.failures import unreachable

        said = shorten(str(error), 160, placeholder=" …") or type(error).__name__
        missing = (DatasetNotFoundError, errors.RepositoryNotFoundError,
                   errors.RemoteEntryNotFoundError, errors.HFValidationError)
        if isinstance(error, missing):
            raise HubError(f"{what} {name!r} is neither here nor on the hub, or needs a token "
                           f"(`hf auth login`); expected its name, or {here}") from None
        if isinstance(error, (*unreachable(), ConnectionError, TimeoutError)):
            raise HubError(f"{what} {name!r} is not here, and the hub cannot be reached ({said}); "
                           f"expected a network, or {here}") from None
        raise ConfigError(f"{what} {name!r} cannot be read: {said}") from None
