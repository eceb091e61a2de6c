"""Which earlier token may a token look for? Pairs of a query and a key, found by pattern.

With A at the query and its latest earlier occurrence followed by B, `... A B ... A`, the induction
pair leads from the query to B: what came after A the last time.

Any token ids will do, those of a pretrained model too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentcode.errors import check_choice


def previous_same(tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """max {s < t : x_s = x_t}, the latest earlier occurrence of each token; -1 where none is."""
    order = tokens.argsort(dim=1, stable=True)
    ordered = tokens.gather(1, order)
    earlier = torch.full_like(order, -1)
    earlier[:, 1:] = torch.where(ordered[:, 1:] == ordered[:, :-1], order[:, :-1], -1)
    return torch.empty_like(order).scatter_(1, order, earlier)


def _place(tokens: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)


def _after_previous_same(tokens: Tensor) -> Tensor:
    earlier = previous_same(tokens)
    return torch.where(earlier >= 0, earlier + 1, -1)


@dataclass(frozen=True)
class Pattern:
    """How the key of every query is found.

    description  one sentence for people
    key          tokens int64 [B, T] -> the key of each as a query, int64 [B, T]; -1 where none is
    """

    description: str
    key: Callable[[Tensor], Tensor]


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
    return torch.stack([PATTERNS[name].key(tokens).gather(1, query[:, None])[:, 0]
                        for name in names], dim=1)


def possible_queries(tokens: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """Return where every pattern has a key, and no two the same."""
    keys = torch.stack([pattern.key(tokens) for pattern in PATTERNS.values()])
    ordered = keys.sort(dim=0).values
    return (ordered[0] >= 0) & (ordered.diff(dim=0) > 0).all(0)
