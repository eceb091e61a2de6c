"""What is read at once: sequences of tokens, and where what a model says of them is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtyping import Bool, Int
from torch import Tensor


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


__all__ = ["TextBatch"]
