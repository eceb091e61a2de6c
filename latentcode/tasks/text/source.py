"""A text that can be read in full: its state, its tokenizer, its documents in splits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.config import LanguageConfig
from latentcode.errors import ArtifactError, check
from latentcode.tasks.text.cache import digest_of
from latentcode.tasks.text.data import TOKEN_COLUMNS, Excerpts, Stream, Tokenizer
from latentcode.tasks.text.documents import Document
from latentcode.tasks.text.tokenizer import FileTokenizer, configured_tokenizer

SPLITS = ("train", "test", "ood")
AT_ONCE = 256
"""Documents that are given to the tokenizer together."""
EXCERPT = 2**18
"""Tokens of a split that are kept to look at, about."""
Tokenized = Iterator[tuple[Document, np.ndarray]]
"""Documents with their ids, the last of which ends them."""


class Source(ABC):
    """A text as a configuration reads it: files, or a dataset on the hub.

    Attributes:
        state: The state it is in: a digest of the files, or a commit.
        called: What tells it from other texts, and from other states of it.
        about: What is known of where it comes from, such as packages and licences.
    """

    state: str
    called: tuple[str, ...]
    about: Mapping[str, Any]

    def __init__(self, config: LanguageConfig) -> None:
        self.config = config

    @cached_property
    def revision(self) -> str:
        """The state of the text, and a digest of the tokenizer."""
        return f"{self.state}-{digest_of(self.tokenizer.to_json())}"

    @cached_property
    def tokenizer(self) -> FileTokenizer:
        """The one that is configured, or is trained on the documents that are trained on."""
        return configured_tokenizer(self.config, self.called,
                                    lambda: (d.text for d in self.documents("train")))

    @abstractmethod
    def documents(self, split: str) -> Iterator[Document]:
        """Return the documents of a split."""

    @abstractmethod
    def sample(self, split: str) -> Tokenized:
        """Return documents of a split, the first of which are kept to look at."""

    @abstractmethod
    def stream(self, seed: int) -> Stream:
        """Return what is trained on."""

    def excerpts(self) -> dict[str, Excerpts]:
        """Return the excerpts of every split; `ConfigError` where there is too little text.

        Without sources that are held out, `ood` is left out where there are not enough documents.
        """
        splits = {}
        for split in SPLITS:
            excerpts = excerpts_of(self.sample(split), self.config.n_tokens)
            needed = split != "ood" or bool(self.config.held_out_sources)
            check(excerpts is not None or not needed, f"task.text {self.config.text!r} has too "
                  f"little text for split {split}; expected at least {self.config.n_tokens + 1:,} "
                  f"tokens in its documents, one sequence of task.n_tokens = "
                  f"{self.config.n_tokens:,} and the token that follows it")
            if excerpts is not None:
                splits[split] = excerpts
        return splits


def part_of(source: str, place: int, apart: tuple[str, ...], every: int) -> str:
    """Return the split of a document.

    Args:
        source: Where the document is from.
        place: Its number among those that are sorted together.
        apart: The sources that are `ood`.
        every: Of so many documents, one is `test`, and one `ood` where no sources are; 0: of none.
    """
    if source in apart:
        return "ood"
    if every and place % every == 0:
        return "test"
    return "ood" if every and place % every == every // 2 and not apart else "train"


def tokenized(documents: Iterable[Document], tokenizer: Tokenizer) -> Tokenized:
    """Return documents with their ids."""
    rest = iter(documents)
    while batch := list(islice(rest, AT_ONCE)):
        yield from zip(batch, encode([d.text for d in batch], tokenizer), strict=True)


def encode(texts: list[str], tokenizer: Tokenizer) -> list[np.ndarray]:
    """Return the ids of every text, with the one that ends it."""
    dtype = integer_type(tokenizer.n_tokens)
    return [np.array([*ids, tokenizer.end], dtype) for ids in tokenizer.encode(texts)]


def excerpts_of(documents: Tokenized, n_tokens: int) -> Excerpts | None:
    """Pack the first documents, about `EXCERPT` tokens, into sequences of n_tokens + 1.

    None where they are not enough for one sequence.
    """
    rows, parts, total = [], [], 0
    for document, ids in documents:
        rows.append(tuple(getattr(document, column) for column in TOKEN_COLUMNS))
        parts.append(ids[:EXCERPT - total])
        total += len(parts[-1])
        if total >= EXCERPT:
            break
    n = (total - 1) // n_tokens
    if n < 1:
        return None
    tokens = np.concatenate(parts).astype(np.int64)
    rows_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    place = np.arange(n)[:, None] * n_tokens + np.arange(n_tokens + 1)
    return Excerpts(torch.from_numpy(tokens[place]), torch.from_numpy(rows_of[place]),
                    pd.DataFrame(rows, columns=list(TOKEN_COLUMNS)))


def integer_type(n: int) -> np.dtype:
    """Return the smallest type of numbers below n that safetensors, Arrow and numpy share."""
    return np.dtype("<u2" if n <= 2**16 else "<u4")


def check_same_text(cursor: Mapping[str, Any], revision: str) -> None:
    """Raise `ArtifactError` for the cursor of another text."""
    stopped = cursor.get("revision")
    check(stopped == revision, f"training stopped in the text of revision {stopped!r}; it is "
          f"{revision!r} now: expected the same text to go on with", ArtifactError)
