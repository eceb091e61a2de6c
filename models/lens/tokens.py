"""Token ids of vectors, for tools that count positions on the last axis of their input."""

from __future__ import annotations

import copy
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import check


class VectorTokens(Tensor):
    """Ids int64 [B, T] of vectors [B, T, d_input], which they bring along.

    Equal vectors have equal ids, so that detectors of repeated tokens see what is repeated. What
    else is made of them than a part or a deep copy has lost its vectors and is refused, as are ids
    that were edited, be it through a part of them.
    """

    _vectors: Tensor
    _unedited: int

    @classmethod
    def of(cls, vectors: Float[Tensor, "B T d_input"]) -> VectorTokens:
        """Return the ids of a batch of vectors."""
        _, ids = torch.unique(vectors.detach().flatten(0, -2), dim=0, return_inverse=True)
        return ids.view(vectors.shape[:-1]).as_subclass(cls)._standing_for(vectors)

    def _standing_for(self, vectors: Tensor) -> VectorTokens:
        self._vectors, self._unedited = vectors, _edits(self)
        return self

    def __getitem__(self, key: Any) -> Tensor:
        part = super().__getitem__(key)
        # Of vectors, the last axis is another one.
        counts_from_the_end = any(k is ... for k in (key if isinstance(key, tuple) else (key,)))
        if isinstance(part, VectorTokens) and self._has_vectors and not counts_from_the_end:
            part._standing_for(self._vectors[key])
        return part

    def __deepcopy__(self, memo: dict[int, Any]) -> VectorTokens:
        if id(self) not in memo:
            memo[id(self)] = self.clone()
            if self._has_vectors:
                memo[id(self)]._standing_for(copy.deepcopy(self._vectors, memo))
        copied: VectorTokens = memo[id(self)]
        return copied

    @property
    def _has_vectors(self) -> bool:
        return "_vectors" in vars(self) and _edits(self) == self._unedited

    @property
    def vectors(self) -> Float[Tensor, "... d_input"]:
        """The vectors that they are the ids of; `ConfigError` where they are lost."""
        check(self._has_vectors, f"token ids of shape {tuple(self.shape)} were made "
              "of what model.to_tokens returned and have lost their vectors; expected "
              "model.to_tokens of the vectors that are meant")
        return self._vectors


def _edits(tokens: Tensor) -> int:
    """Count the edits in place of the memory behind a tensor, which inference mode does not."""
    return 0 if tokens.is_inference() else tokens._version
