"""What is read at once: sequences of tokens, and where what a model says of them is measured."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

GROUPS = 256
"""Groups of texts of which sums are kept, and which the bootstrap resamples: text i is in group
i mod 256, by itself where there are no more texts."""



@dataclass(frozen=True)
class TextBatch:
    """Some texts, or prompts, padded on the right.

    tokens   ids [B, T]
    lengths  of each text, in tokens
    targets  what comes next: of a text its own next token, of a prompt its answer (at its last
             token); 0 where nothing does
    read     where what the model says comes next is measured; never where nothing comes next
    text     the number of the text or prompt that each row is of: what the bootstrap resamples.
             Several rows can be of one, such as excerpts of a document or prompts of a combination
    padding  what the model is told of padding (`LanguageModel.padded`)
    row      the number of each row among all that are read; default: that of its text
    """

    tokens: Int[Tensor, "B T"]
    lengths: Int[Tensor, " B"]
    targets: Int[Tensor, "B T"]
    read: Bool[Tensor, "B T"]
    text: Int[Tensor, " B"]
    padding: Mapping[str, Tensor] = field(default_factory=dict)
    row: Int[Tensor, " B"] | None = None

    @property
    def rows(self) -> Int[Tensor, " B"]:
        """The number of each row, no two the same."""
        return self.text if self.row is None else self.row

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor) -> TextBatch:
        """Return some rows, int64 or bool."""
        return self._map(lambda x: x[rows.to(x.device)])

    def to(self, device: torch.device) -> TextBatch:
        """Return the batch on a device."""
        return self._map(lambda x: x.to(device))

    def of_texts(self, texts: Container[int]) -> TextBatch:
        """Return the rows of some texts, by their numbers."""
        return self[torch.tensor([text in texts for text in self.text.tolist()])]

    @property
    def group(self) -> Int[np.ndarray, " B"]:
        """The group of each row (`GROUPS`)."""
        return np.asarray(self.text.cpu().numpy() % GROUPS)

    def _map(self, function: Callable[[Tensor], Tensor]) -> TextBatch:
        changed: dict[str, Any] = {
            name: function(x) if isinstance(x, Tensor) else {
                argument: function(of) for argument, of in x.items()}
            for name, x in vars(self).items() if x is not None}
        return replace(self, **changed)


__all__ = ["GROUPS", "TextBatch"]
