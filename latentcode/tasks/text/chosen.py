"""Texts that copy, of which somebody chooses what is put where: from where, and what, is copied."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from latentcode.errors import check_choice
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import ChosenPairs, MinimalPairs
from latentcode.tasks.text.counterfactuals import TextCounterfactuals
from latentcode.tasks.text.render import visible
from latentcode.tasks.text.task import Text


class ChosenText(TextCounterfactuals, ChosenPairs):
    """A text copies from p, and its source from another place p'; both places stand in both texts.

    The operation is the place that is copied from, the operands are the tokens after both places:
    B and C in the base, B' and D in the source. All four answers are known.
    """

    symbolic = True
    whole = False
    carried_at = "response"
    places = ("context", "operands", "response")
    about_places: Mapping[str, str] = {
        "context": "the two tokens after which there is something to copy",
        "operands": "the two tokens that could be copied",
        "response": "the query, after which the copy is read"}

    def __init__(self, task: Text, factorial: bool = True) -> None:
        super().__init__(task, factorial, operation="elsewhere")

    @property
    def symbols(self) -> tuple[str, ...]:
        """The tokens of the vocabulary, as people see them."""
        return tuple(visible(piece) for piece in self.task.token_table.pieces)

    def held(self, batch: Batch) -> Tensor:
        """Return from where each text copies, which is p: int64 [B, 1]."""
        return torch.zeros(len(batch), 1, dtype=torch.long, device=batch.inputs.device)

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        """Return that the source copies from elsewhere: bool [B, 2]."""
        return torch.tensor([[False, True]], device=which.device).repeat(len(batch), 1)

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        self.factorial = True
        return self.pairs_of(batch, generator)

    def answers(self, pairs: MinimalPairs) -> Tensor:
        """Return B and C, which follow the two places in the base: float64 [B, 2]."""
        assert pairs.candidates is not None
        return pairs.candidates[:, :2]

    def place(self, name: str, pairs: MinimalPairs) -> Tensor:
        """Return p and p', the tokens after them, or the query."""
        check_choice("place", name, self.places)
        batch = pairs.bases
        tokens = torch.zeros(batch.inputs.shape[:2], dtype=torch.bool, device=batch.inputs.device)
        if name == "response":
            return tokens.scatter(1, batch.info["query"][:, None], True)
        keys = torch.stack([batch.info["key"], pairs.sources.info["key"]], 1)
        return tokens.scatter(1, keys - int(name == "context"), True)


__all__ = ["ChosenText"]
