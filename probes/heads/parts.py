"""Texts as they pass through a model: on its device, as many as fit, read at a few tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from latentcode.models.replay import NUMBERS, TOKENS
from latentcode.probes.heads.batches import TextBatch
from latentcode.seeds import make_generator

KEPT = 2**26
"""Numbers of activations that are kept of the tokens of a part."""


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


__all__ = ["drawn", "in_parts"]
