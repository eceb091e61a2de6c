"""Texts as they pass through a model: on its device, as many as fit, read at a few tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from latentcode.models.replay import NUMBERS
from latentcode.probes.heads.batches import TextBatch
from latentcode.seeds import make_generator


def in_parts(
    batch: TextBatch, model: Any, n_read: int | None, seed: int
) -> list[TextBatch]:
    """Return a batch on the device of a model, in parts whose logits fit into memory.

    n_read  tokens of each row that are read, drawn at random (`drawn`); rows without any are left
            out

    A part has at least two rows, where the batch has, so that there is another text.
    """
    batch = on_device(batch, model)
    batch = replace(batch, read=drawn(batch, n_read, seed))
    batch = rows_of(batch, batch.read.any(1))
    if not len(batch):
        return []
    logits = int(batch.read.sum(1).max()) * int(getattr(model.cfg, "d_vocab", 1))
    n_rows = max(2, min(NUMBERS // logits, len(batch)))
    n_parts = max(1, len(batch) // n_rows)
    return [rows_of(batch, rows) for rows in torch.arange(
        len(batch), device=batch.tokens.device).tensor_split(n_parts)]


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


def rows_of(batch: TextBatch, rows: Tensor) -> TextBatch:
    """Return some rows of a batch, int64 or bool."""
    return TextBatch(batch.tokens[rows], batch.lengths[rows], batch.targets[rows],
                     batch.read[rows], batch.text[rows],
                     {name: x[rows] for name, x in batch.padding.items()})


def on_device(batch: TextBatch, model: Any) -> TextBatch:
    """Return a batch on the device of a model."""
    device = next(model.parameters()).device
    return TextBatch(
        batch.tokens.to(device), batch.lengths.to(device), batch.targets.to(device),
        batch.read.to(device), batch.text.to(device),
        {name: x.to(device) for name, x in batch.padding.items()})


__all__ = ["drawn", "in_parts", "on_device", "rows_of"]
