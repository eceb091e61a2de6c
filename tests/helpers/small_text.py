"""A text in memory, whose spans come again and again, and a tokenizer of words."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from latentcode.config import LanguageConfig
from latentcode.models.config import with_kind
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import model_for
from latentcode.tasks.text.sources import StoredText
from latentcode.tasks.text.streams import TOKEN_COLUMNS, Excerpts, Stream
from latentcode.tasks.text.task import Text

WORDS = tuple(a + b for a in ("ka", "lo", "mi", "nu", "pe", "ri", "so", "tu") for b in (
    "ba", "da", "fa", "ga", "ha", "ja"))
MARKS = ("\n", "    ", "(", ")", "[", "]", ".", ",", " 7", "12", "x2", "Ka", " Lo")
PIECES = ("<end>", *MARKS, *(f" {word}" for word in WORDS), *WORDS[:8])
CONFIG = LanguageConfig(n_vocabulary=80, n_tokens=24, text="in memory")


class WordTokenizer:
    """Longest piece first; what is no piece is an error."""

    pieces, names, n_tokens, end = PIECES, PIECES, len(PIECES), 0
    _ids: Mapping[str, int] = {piece: i for i, piece in enumerate(PIECES)}
    _any = re.compile("|".join(map(re.escape, sorted(PIECES, key=len, reverse=True))))

    def encode(self, texts: list[str]) -> list[list[int]]:
        found = [self._any.findall(text) for text in texts]
        assert ["".join(pieces) for pieces in found] == texts
        return [[self._ids[piece] for piece in pieces] for pieces in found]

    def locate(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        return self.encode([text])[0], [found.span() for found in self._any.finditer(text)]

    def decode(self, ids: list[int]) -> str:
        return "".join(PIECES[i] for i in ids)


def document(seed: int, n_tokens: int = 90) -> str:
    """Return a text of three spans in any order, each of 6 to 10 different tokens."""
    rng = random.Random(seed)
    spans = ["".join(rng.sample(PIECES[1:], rng.randint(6, 10))) for _ in range(3)]
    return "".join(rng.choices(spans, k=n_tokens // 8))


class SmallText(StoredText):
    """A text of documents that seeds write, of every split others, and that is nowhere stored."""

    tokenizer, splits = WordTokenizer(), ("train", "test", "ood")

    def __init__(self, n_tokens: int, n_documents: int = 60) -> None:
        self.n_tokens, self.n_documents = n_tokens, n_documents

    def packed(self, split: str) -> tuple[Tensor, Tensor]:
        """Return the ids of all documents, each ended, and which document each belongs to."""
        first = self.splits.index(split) * 1_000_000
        texts = [document(first + i) for i in range(self.n_documents)]
        ids = [[*row, self.tokenizer.end] for row in self.tokenizer.encode(texts)]
        return (torch.tensor([i for row in ids for i in row]),
                torch.tensor([d for d, row in enumerate(ids) for _ in row]))

    def excerpts(self, split: str) -> Excerpts:
        tokens, documents = (
            x.unfold(0, self.n_tokens + 1, self.n_tokens).clone() for x in self.packed(split))
        return Excerpts(tokens, documents, pd.DataFrame(
            [(f"{split}/{i}.txt", "seeds" if i % 2 else "more seeds", ("py", "md", "")[i % 3])
             for i in range(self.n_documents)], columns=TOKEN_COLUMNS))

    def stream(self, seed: int) -> _Stream:
        return _Stream(self.excerpts("train").tokens, seed)


class _Stream(Stream):
    def __init__(self, tokens: Tensor, seed: int) -> None:
        self.tokens = tokens[torch.randperm(len(tokens), generator=torch.Generator().manual_seed(
            seed))]

    def __getitem__(self, sequences: slice) -> Tensor:
        return self.tokens[torch.arange(sequences.start, sequences.stop) % len(self.tokens)]

    def cursor(self, sequence: int) -> Mapping[str, Any]:
        return {"sequence": sequence}

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        pass


def text_model(kind: str | None = None, n_layers: int = 2) -> HookedTransformer:
    """Return a model of these tokens that has learned nothing, of a kind or the default one."""
    config = model_for(CONFIG, n_layers=n_layers, d_model=32, n_heads=4, d_head=2, d_head_v=2,
                       d_mlp=32, embedding="token", causal=True, attention_dropout=0.0,
                       positions="rotary")
    return HookedTransformer(config if kind is None else with_kind(config, kind), seed=1)


@cache
def small_text(config: LanguageConfig = CONFIG) -> Text:
    """Return the task of the small text."""
    return Text(config, SmallText(config.n_tokens))
