"""Token ids of vectors, for tools that count positions on the last axis of their input."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import check


class VectorTokens(Tensor):
    """Ids int64 [B, T] of vectors [B, T, d_input], which they bring along.

    Equal vectors have equal ids, so that detectors of repeated tokens see what is repeated. What
    else is made of them than a part, such as a copy on another device, has lost its vectors and is
    refused.
    """

    _vectors: Tensor

    @classmethod
    def of(cls, vectors: Float[Tensor, "B T d_input"]) -> VectorTokens:
        """Return the ids of a batch of vectors."""
        _, ids = torch.unique(vectors.detach().flatten(0, -2), dim=0, return_inverse=True)
        tokens = ids.view(vectors.shape[:-1]).as_subclass(cls)
        tokens._vectors = vectors
        return tokens

    def __getitem__(self, key: Any) -> Tensor:
        part = super().__getitem__(key)
        # Of vectors, the last axis is another one.
        counts_from_the_end = any(k is ... for k in (key if isinstance(key, tuple) else (key,)))
        if isinstance(part, VectorTokens) and "_vectors" in vars(self) and not counts_from_the_end:
            part._vectors = self._vectors[key]
        return part

    def __setitem__(self, key: Any, value: Any) -> None:
        vars(self).pop("_vectors", None)
        super().__setitem__(key, value)

    @property
    def vectors(self) -> Float[Tensor, "... d_input"]:
        """The vectors that they are the ids of; `ConfigError` where they are lost."""
        check("_vectors" in vars(self), f"token ids of shape {tuple(self.shape)} were made "
              "of what model.to_tokens returned and have lost their vectors; expected "
              "model.to_tokens of the vectors that are meant")
        return self._vectors
