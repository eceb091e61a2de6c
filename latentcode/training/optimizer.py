"""AdamW with the official schedule and decay mask."""

from __future__ import annotations

from math import cos, pi

import torch
from torch import nn

from latentcode.config import TrainingConfig

BETAS = (0.9, 0.999)
EPSILON = 1e-8
FINAL_FRACTION = 0.1
"""Share of the peak learning rate that remains after the cosine (official schedule)."""


def learning_rate(step: int, config: TrainingConfig) -> float:
    """lr(t): from 0 to the peak over the warm-up, by a cosine to a tenth of it, then constant.

    `step` counts from 0, so that the first update has learning rate 0 when there is a warm-up.
    The cosine takes `steps - 2 * warmup_steps` updates, as in the official code, and ends at
    `steps - warmup_steps`.
    """
    peak, warmup = config.learning_rate, config.warmup_steps
    if step < warmup:
        return peak * step / warmup
    progress = min((step - warmup) / (config.steps - 2 * warmup), 1.0)
    fraction = FINAL_FRACTION + (1.0 - FINAL_FRACTION) * (1.0 + cos(pi * progress)) / 2.0
    return peak * fraction


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Give all parameters the same learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = value


def is_decayed(parameter: torch.Tensor) -> bool:
    """Whether weight decay applies: to every tensor that is not one-dimensional.

    As in the official code this spares LayerNorm and the biases of dense layers, but not the
    query, key and value biases [H, d_head], the relative position bias and embeddings.
    """
    return parameter.ndim != 1


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """p <- p - lr (m / (sqrt(v) + 1e-8) + weight_decay p): AdamW with betas 0.9 and 0.999.

    The decay is decoupled and masked by `is_decayed`. The learning rate starts at that of
    step 0 and is set anew for every step by the training loop.
    """
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if is_decayed(p)], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if not is_decayed(p)], "weight_decay": 0.0},
    ]
    # One kernel for all tensors: about a fifth of the time of a loop over them, CPU included.
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=learning_rate(0, config),
                             betas=BETAS, eps=EPSILON, fused=True)
