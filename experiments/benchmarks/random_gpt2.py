"""A GPT-2 with random weights, and texts of random tokens for it to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from latentcode.models.pretrained import as_bridge, fresh_network
from latentcode.probes.heads.batches import TextBatch
from latentcode.seeds import make_generator


@dataclass(frozen=True)
class Size:
    """Of the model, and of what it reads."""

    n_layers: int = 12
    n_heads: int = 12
    d_model: int = 768
    vocabulary: int = 50_257
    n_texts: int = 40
    n_tokens: int = 250
    batch_size: int = 8


def random_model(size: Size) -> Any:
    """Return the bridge of a GPT-2 with random weights."""
    from transformers import GPT2Config

    return as_bridge("random", fresh_network(GPT2Config(
        vocab_size=size.vocabulary, n_embd=size.d_model, n_layer=size.n_layers,
        n_head=size.n_heads, n_positions=max(1024, size.n_tokens), bos_token_id=0,
        eos_token_id=0), torch.float32, 0), None)


def random_texts(size: Size) -> list[TextBatch]:
    """Return batches of texts of random tokens."""
    tokens = torch.randint(size.vocabulary, (size.n_texts, size.n_tokens),
                           generator=make_generator(0, "random texts"))
    read = torch.ones_like(tokens, dtype=torch.bool)
    read[:, -1] = False
    return [TextBatch(tokens[rows], torch.full((len(rows),), size.n_tokens),
                      tokens[rows].roll(-1, 1), read[rows], rows)
            for rows in torch.arange(size.n_texts).split(size.batch_size)]


__all__ = ["Size", "random_model", "random_texts"]
