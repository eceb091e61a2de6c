"""The parts of a text: documents, tokenizer, excerpts to look at, and a stream to train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pandas as pd
from jaxtyping import Int
from torch import Tensor

TOKEN_COLUMNS = ("name", "source", "kind")
"""Columns of `Excerpts.documents`: path, address or number of a document; the package, folder or
column it comes from; and the language that it is in, such as `py` or `md`, empty if unknown."""


@dataclass(frozen=True)
class Document:
    """One document, with its `TOKEN_COLUMNS`."""

    text: str
    name: str
    source: str = ""
    kind: str = ""


@runtime_checkable
class Tokenizer(Protocol):
    """Text into token ids and back."""

    @property
    def n_tokens(self) -> int:
        """Number of ids that it gives out, special ones included."""

    @property
    def end(self) -> int:
        """The id that ends a document."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of every id, for people; parts of characters are shown as \\ufffd."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of every text, without special ones."""

    def locate(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids that `encode` gives a text, and the characters (first, last + 1) that
        each of them stands for, in whole or in part."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""


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


@runtime_checkable
class Stream(Protocol):
    """The text that is trained on, packed, in an order that a seed determines.

    Sequence i depends on (text, tokenizer, T, seed, i) alone, however it is read.
    """

    def __getitem__(self, sequences: slice) -> Int[Tensor, "n S"]:
        """Return sequences first to last - 1 as int64 [n, T + 1], on the CPU."""

    def cursor(self, sequence: int) -> Mapping[str, Any]:
        """Return what a later process needs to go on at a sequence without reading all before it:
        plain JSON."""

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        """Take the cursor of another process; `ArtifactError` for one of another text."""


class TextData(Protocol):
    """One state of a text, with its tokenizer."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the text."""

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that it has."""

    def excerpts(self, split: str) -> Excerpts:
        """Return excerpts of a split: the same for every process and machine that has the run."""

    def stream(self, seed: int) -> Stream:
        """Return the training text; `ConfigError` where it is not here, or cannot be reached."""
