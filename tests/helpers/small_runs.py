"""A run of four updates, which takes a moment."""

from __future__ import annotations

from latentcode.config import LogicConfig, RunConfig, TrainingConfig
from latentcode.models.config import ModelConfig

CONFIG = RunConfig(
    LogicConfig(n_variables=2, n_examples=4, ood_fraction=0.4),
    ModelConfig(d_input=3, n_layers=1, d_model=4, n_heads=2, d_mlp=4, n_buckets=4, max_distance=4),
    TrainingConfig(steps=4, batch_size=4, warmup_steps=1, eval_every=2, eval_instances=4,
                   log_every=2, checkpoint_every=2))
