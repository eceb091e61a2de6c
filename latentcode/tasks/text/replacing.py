"""Which token may stand in place of another, and where? Replacing tokens of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from latentcode.tasks.batch import Batch
from latentcode.tasks.text.patterns import INDUCTION, SAME, keys_at
from latentcode.tasks.text.task import whole

TRIES = 16
"""Tokens drawn to find one that may stand in place of another."""


@dataclass(frozen=True)
class Window:
    """Where query, earlier occurrence and key of each window are, int64 [B]."""

    query: Tensor
    earlier: Tensor
    key: Tensor

    @classmethod
    def of(cls, text: Batch) -> Window:
        key, earlier = keys_at(text.inputs, text.info["query"], (INDUCTION, SAME)).unbind(1)
        return cls(text.info["query"], earlier, key)

    def written(self, text: Batch, first: Tensor, second: Tensor, *, copying: bool) -> Batch:
        """Return a text with given tokens at p and p + 1; what is copied is to come next.

        Info, beside that of the text: `key`, `copied`, the token at p + 1, and `copying`.
        """
        tokens = text.inputs.scatter(1, self.earlier[:, None], first[:, None]).scatter(
            1, self.key[:, None], second[:, None])
        batch = with_tokens(text, tokens, {
            **text.info, "key": self.key, "copied": second,
            "copying": torch.full_like(second, copying, dtype=torch.bool)})
        return batch if not copying else replace(batch, targets=batch.targets.scatter(
            1, self.query[:, None], second[:, None]))


@dataclass(frozen=True)
class Alike:
    """Which ids may stand in place of each other? Those of one group, side by side in `order`."""

    order: Tensor
    start: Tensor
    size: Tensor

    @classmethod
    def of(cls, properties: np.ndarray) -> Alike:
        """Group the ids of properties int [V, n]: alike are those that agree in all."""
        _, group, sizes = np.unique(properties, axis=0, return_inverse=True, return_counts=True)
        group = group.ravel()
        starts = np.cumsum(sizes) - sizes
        return cls(torch.from_numpy(np.argsort(group, kind="stable")),
                   torch.from_numpy(starts[group]), torch.from_numpy(sizes[group]))

    def draw(self, ids: Tensor, unlike: Tensor, generator: torch.Generator) -> Tensor:
        """Return for each id another of its group that is none of `unlike` [B, n]; the id itself
        where `TRIES` draws find none."""
        order, start, size = (x.to(ids.device) for x in (self.order, self.start, self.size))
        chance = torch.rand(len(ids), TRIES, generator=generator, device=ids.device)
        tried = order[start[ids][:, None] + (chance * size[ids][:, None]).long()]
        good = (tried[:, :, None] != unlike[:, None]).all(2)
        first = good.long().argmax(1, keepdim=True)
        return torch.where(good.any(1), tried.gather(1, first)[:, 0], ids)


def with_tokens(batch: Batch, tokens: Tensor, info: Mapping[str, Tensor]) -> Batch:
    """Return a text with other tokens [B, T]; the one after the last stays."""
    targets = torch.cat([tokens[:, 1:], whole(batch)[:, -1:]], 1)
    return replace(batch, inputs=tokens, targets=targets, info=info)


def at(values: Tensor, where: Tensor) -> Tensor:
    """Return values[b, where_b] of values [B, T], [B]."""
    return values.gather(1, where[:, None])[:, 0]


__all__ = ["Alike", "Window", "at", "with_tokens"]
