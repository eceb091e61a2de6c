"""The update of AdamW of all members of an ensemble, as one program in Triton.

It reads every number once and writes it once; operator by operator that is twelve passes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1_024
"""Numbers that one instance of the program updates."""


@torch.library.custom_op(
    "latentcode::adamw", mutates_args=("weights", "first", "second"))
def adamw(
    weights: Tensor, gradients: Tensor, first: Tensor, second: Tensor, rates: Tensor,
    decay: Tensor, beta1: float, beta2: float, epsilon: float,
) -> None:
    """Update, in place, as `adamw_` does: all [E, parameters] and contiguous, rates [3, E, 1]."""
    assert all(x.is_contiguous() for x in (weights, gradients, first, second, rates, decay))
    members, n = weights.shape
    with torch.cuda.device_of(weights):
        _update[triton.cdiv(n, BLOCK), members](
            weights, gradients, first, second, rates, decay, n, members, beta1, beta2, epsilon,
            BLOCK)


@triton.jit
def _update(
    weights, gradients, first, second, rates, decay, N, E, BETA1: tl.constexpr,
    BETA2: tl.constexpr, EPSILON: tl.constexpr, BLOCK: tl.constexpr,
):
    """Update one block of the numbers of one member."""
    member = tl.program_id(1)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = column < N
    at = member.to(tl.int64) * N + column
    rate = tl.load(rates + member)
    first_rate = tl.load(rates + E + member)
    second_scale = tl.load(rates + 2 * E + member)
    gradient = tl.load(gradients + at, there)
    m = tl.load(first + at, there)
    m += (1.0 - BETA1) * (gradient - m)
    v = BETA2 * tl.load(second + at, there) + (1.0 - BETA2) * gradient * gradient
    weight = tl.load(weights + at, there) * (1.0 - rate * tl.load(decay + at, there))
    weight -= first_rate * m / (tl.sqrt(v) * second_scale + EPSILON)
    tl.store(first + at, m, there)
    tl.store(second + at, v, there)
    tl.store(weights + at, weight, there)
