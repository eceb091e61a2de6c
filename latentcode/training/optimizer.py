"""AdamW with the official schedule and decay mask."""

from __future__ import annotations

import math
from math import cos, pi

import torch
from torch import Tensor, nn

from latentcode.config import TrainingConfig
from latentcode.models.kernels.gpu.available import why_not

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


def is_decayed(parameter: Tensor) -> bool:
    """Whether weight decay applies: to every tensor that is not one-dimensional.

    As in the official code this spares LayerNorm and the biases of dense layers, but not the
    query, key and value biases [H, d_head], the relative position bias and embeddings.
    """
    return parameter.ndim != 1


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """p <- p - lr (m / (sqrt(v) + 1e-8) + weight_decay p): AdamW with betas 0.9 and 0.999.

    The decay is decoupled and masked by `is_decayed`. The learning rate starts at that of
    step 0 and is set for every step by the training loop.
    """
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if is_decayed(p)], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if not is_decayed(p)], "weight_decay": 0.0},
    ]
    # One kernel for all tensors: about a fifth of the time of a loop over them, CPU included.
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=learning_rate(0, config),
                             betas=BETAS, eps=EPSILON, fused=True)


def adamw_rates(step: int, config: TrainingConfig) -> tuple[float, float, float]:
    """Return lr(t), lr(t) / (1 - beta1^(t+1)) and 1 / sqrt(1 - beta2^(t+1)) of update t, from 0."""
    rate = learning_rate(step, config)
    return (rate, rate / (1.0 - BETAS[0]**(step + 1)),
            1.0 / math.sqrt(1.0 - BETAS[1]**(step + 1)))


def adamw_(
    weights: Tensor, gradients: Tensor, moments: tuple[Tensor, Tensor], rates: Tensor,
    decay: Tensor,
) -> None:
    """One update, in place, of the AdamW of `make_optimizer` for the members of an ensemble.

    weights, gradients, moments  [E, parameters]
    rates                        [3, E, 1], the `adamw_rates` of every member
    decay                        [E, parameters], weight decay where `is_decayed`, else 0

    torch's own takes a learning rate per group of tensors, and would need a launch per member. On
    a GPU with Triton this is one launch.
    """
    if weights.device.type == "cuda" and why_not(weights.device) is None:
        from latentcode.training.optimizer_on_gpu import adamw

        return adamw(weights, gradients, *moments, rates, decay, *BETAS, EPSILON)
    first, second = moments
    rate, first_rate, second_scale = rates
    first.lerp_(gradients, 1.0 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(gradients, gradients, value=1.0 - BETAS[1])
    weights.mul_(1.0 - rate * decay)
    weights.sub_(first_rate * first / (second.sqrt() * second_scale + EPSILON))
