"""Pairs and labels of tokens that need no annotation: patterns, classes of characters, copying.

With A at the query and its latest earlier occurrence followed by B, `... A B ... A`, the induction
pair leads from the query to B: what came after A the last time. Any token ids will do, those of a
pretrained model too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentcode.errors import check_choice
from latentcode.tasks.base import at
from latentcode.tasks.text.tokenizer import Tokenizer


def previous_same(tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """max {s < t : x_s = x_t}, the latest earlier occurrence of each token; -1 where none is."""
    order = tokens.argsort(dim=1, stable=True)
    ordered = tokens.gather(1, order)
    earlier = torch.full_like(order, -1)
    earlier[:, 1:] = torch.where(ordered[:, 1:] == ordered[:, :-1], order[:, :-1], -1)
    return torch.empty_like(order).scatter_(1, order, earlier)


@dataclass(frozen=True)
class Pattern:
    """How the key of every query is found.

    description  one sentence for people
    key          tokens int64 [B, T] -> the key of each as a query, int64 [B, T]; -1 where none is
    """

    description: str
    key: Callable[[Tensor], Tensor]


def _after_previous_same(tokens: Tensor) -> Tensor:
    earlier = previous_same(tokens)
    return torch.where(earlier >= 0, earlier + 1, -1)


def _place(tokens: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)


INDUCTION, SAME, PREVIOUS = "query->induction", "query->same", "query->previous"
PATTERNS: Mapping[str, Pattern] = {
    INDUCTION: Pattern("the token after the latest earlier occurrence of the query's token",
                       _after_previous_same),
    SAME: Pattern("the latest earlier occurrence of the query's token", previous_same),
    PREVIOUS: Pattern("the token before the query", lambda tokens: _place(tokens) - 1),
    "query->first": Pattern("the first token", torch.zeros_like),
    "query->self": Pattern("the query itself", _place),
}
"""By the name of the pair; the induction pair first."""


def keys_at(
    tokens: Int[Tensor, "B T"], query: Int[Tensor, " B"], names: Sequence[str]
) -> Int[Tensor, "B P"]:
    """Return the keys of a query of each sequence; -1 where there is none.

    Raises `UnknownNameError` for a pattern.
    """
    for name in names:
        check_choice("pattern", name, PATTERNS)
    return torch.stack([at(PATTERNS[name].key(tokens), query) for name in names], dim=1)


def possible_queries(tokens: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """Return where every pattern has a key, and no two the same."""
    keys = torch.stack([pattern.key(tokens) for pattern in PATTERNS.values()])
    ordered = keys.sort(dim=0).values
    return (ordered[0] >= 0) & (ordered.diff(dim=0) > 0).all(0)


CLASSES: tuple[str, ...] = ("letter", "digit", "space", "newline", "punctuation", "bracket",
                            "mixed", "end")
"""Classes of characters; spaces before other characters do not count. `end` ends a document."""
BRACKETS = "([{)]}"
ROLES: tuple[str, ...] = ("query", "key", "next")
"""Tokens with labels of their own: the query's, the induction pair's key and the answer."""


@dataclass(frozen=True)
class TokenTable:
    """Texts, names and classes of V token ids.

    Attributes:
        pieces: The text of every id, which several ids can share.
        end: The id that ends a document, or None where there is none.
        names: The name of every id, no two the same; empty where nobody asks for them.
    """

    pieces: tuple[str, ...]
    end: int | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, tokenizer: Tokenizer, n: int) -> TokenTable:
        """Return the table of a model with n ids, of which a tokenizer may leave the last unused.
        """
        unused = range(tokenizer.n_tokens, n)
        return cls((*tokenizer.pieces, *[""] * len(unused)), tokenizer.end,
                   (*tokenizer.names, *(f"<id {number}>" for number in unused)))

    @cached_property
    def classes(self) -> np.ndarray:
        """The class of characters of every id, indices of `CLASSES`."""
        classes = np.array([CLASSES.index(class_of(piece)) for piece in self.pieces])
        if self.end is not None:
            classes[self.end] = CLASSES.index("end")
        return classes

    @cached_property
    def spaced(self) -> np.ndarray:
        """Whether an id begins with space, bool [V]."""
        return np.array([piece[:1].isspace() for piece in self.pieces])


def class_of(piece: str) -> str:
    """Return which of `CLASSES` a text is of; parts of characters are `mixed`."""
    text = piece.strip()
    if not text:
        return "newline" if "\n" in piece else "space"
    kinds = {"letter" if c.isalpha() else "digit" if c.isdigit()
             else "bracket" if c in BRACKETS
             else "mixed" if c.isspace() or c == "\ufffd" else "punctuation" for c in text}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def frequency_bins(tokens: Tensor, n_ids: int) -> np.ndarray:
    """floor(log10(1 + n_v)), n_v how often id v occurs in a million of `tokens`: int64 [V]."""
    counts = torch.bincount(tokens.flatten().cpu(), minlength=n_ids).double().numpy()
    return np.log10(1.0 + 1e6 * counts / max(counts.sum(), 1.0)).astype(np.int64)


def token_labels(
    tokens: Int[Tensor, "B S"], query: Int[Tensor, " B"], table: TokenTable
) -> pd.DataFrame:
    """Return labels of each query, its key of the induction pair and its next token, a row each.

    {role}_class  class of characters (`CLASSES`), of the roles query, key and next
    copied        whether the induction pair is right: the next token is that of the pair's key
    distance      tokens since the query's token occurred last, in bins: 1, 2-3, 4-7, 8-15, ...

    Args:
        tokens: Sequences that go on at least until the token after the query.
        query: Position of the query.
        table: Classes of the ids.
    """
    tokens, query = tokens.cpu(), query.cpu()
    induction, same = keys_at(tokens, query, (INDUCTION, SAME)).unbind(1)
    ids = {role: at(tokens, place).numpy()
           for role, place in zip(ROLES, (query, induction, query + 1), strict=True)}
    names = np.array(CLASSES, dtype=object)
    power = np.log2((query - same).numpy()).astype(int)
    bins = ["1", *(f"{2**k}-{2**(k + 1) - 1}" for k in range(1, power.max(initial=0) + 1))]
    return pd.DataFrame({
        **{f"{role}_class": names[table.classes[token]] for role, token in ids.items()},
        "copied": ids["next"] == ids["key"], "distance": np.array(bins, dtype=object)[power]})
