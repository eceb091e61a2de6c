"""Texts as they pass through a model: padded batches, and the parts of them that fit."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentcode.models.replay import NUMBERS, TOKENS
from latentcode.probes.heads.tables import GROUPS
from latentcode.seeds import make_generator

KEPT = 2**26
"""Numbers of activations that are kept of the tokens of a part."""


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


def in_parts(
    batch: TextBatch, model: Any, n_read: int | None, seed: int, *, backward: bool = False
) -> list[TextBatch]:
    """Return a batch on the device of a model, in parts that fit into memory.

    n_read    tokens of each row that are read, drawn at random (`drawn`); rows without any are left
              out
    backward  whether all that a backward pass needs is kept

    A part has at least two rows, where the batch has and nothing goes backward, so that there is
    another text.
    """
    batch = batch.to(next(model.parameters()).device)
    batch = replace(batch, read=drawn(batch, n_read, seed))
    batch = batch[batch.read.any(1)]
    if not len(batch):
        return []
    config, n_tokens = model.cfg, batch.tokens.shape[1]
    logits = int(batch.read.sum(1).max()) * int(getattr(config, "d_vocab", 1))
    # Of each token: streams, and what blocks, attention and heads put out; or all activations of a
    # block (Korthikanti et al., arXiv 2205.05198, equation 2, in numbers of two bytes there).
    kept = n_tokens * config.n_layers * (
        17 * config.d_model + 3 * config.n_heads * n_tokens if backward else 4 * config.d_model)
    n_rows = max(1 if backward else 2, min(
        NUMBERS // logits, TOKENS // n_tokens, KEPT // kept))
    n_parts = max(1, len(batch) // n_rows)
    return [batch[rows] for rows in torch.arange(len(batch)).tensor_split(n_parts)]


def drawn(batch: TextBatch, n_read: int | None, seed: int) -> Bool[Tensor, "B T"]:
    """Return where a batch is read: at most `n_read` tokens of each row."""
    if n_read is None:
        return batch.read
    read = torch.zeros_like(batch.read)
    for row, text in enumerate(batch.text.tolist()):
        where = batch.read[row].nonzero().flatten()
        generator = make_generator(seed, f"tokens of text {text}")
        read[row, where[torch.randperm(len(where), generator=generator)[:n_read].to(
            where.device)]] = True
    return read
