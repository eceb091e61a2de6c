"""A training that takes a fraction of a second and still uses everything: dropout, all splits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from latentcode.config import LogicConfig, RunConfig, TrainingConfig
from latentcode.models.config import ModelConfig

TINY = RunConfig(
    LogicConfig(n_variables=3, n_terms=2, n_examples=6, ood_fraction=0.3),
    ModelConfig(d_input=4, n_layers=2, d_model=8, n_heads=2, d_head=2, d_head_v=2, d_mlp=8,
                n_buckets=6, max_distance=6, attention_dropout=0.1),
    TrainingConfig(steps=12, batch_size=8, warmup_steps=2, eval_every=5, eval_instances=8,
                   log_every=4, checkpoint_every=5, keep_checkpoints=2, learning_rate=1e-2))


@contextmanager
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
