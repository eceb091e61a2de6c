"""Attention over long sequences for two kinds of the paper that need nothing of the size Q x K."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from latentcode.models.attention import nonlinearity

CHUNK = 64
"""Tokens of a chunk of causal linear attention: with more, its scores take more memory than the
sums of the chunks before it."""


def softmax_attention(
    q: Float[Tensor, "*E B Q H d"], k: Float[Tensor, "*E B K H d"], v: Float[Tensor, "*E B K H dv"],
    causal: bool, phi: str,
) -> Float[Tensor, "*E B Q H dv"]:
    """z_qh = sum_k softmax_k(q_qh . k_kh / sqrt(d)) phi(v_kh), by PyTorch's own kernels."""
    lead = q.shape[:-3]
    q, k, v = (x.flatten(0, -4).transpose(-3, -2) for x in (q, k, nonlinearity(phi)(v)))
    z = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return z.transpose(-3, -2).unflatten(0, lead)


def linear_attention(
    q: Float[Tensor, "*E B Q H d"], k: Float[Tensor, "*E B K H d"], v: Float[Tensor, "*E B K H dv"],
    causal: bool, phi: str,
) -> Float[Tensor, "*E B Q H dv"]:
    """z_qh = sum_k (q_qh . k_kh / sqrt(d)) phi(v_kh) = q_qh (sum_k k_kh phi(v_kh)^T) / sqrt(d).

    In time and memory linear in the length. Causal: within a chunk by scores, and by the sum of
    k phi(v)^T over the chunks before it, which is kept in float32 at least.
    """
    n_queries, dtype = q.shape[-3], q.dtype
    q, k, v = (x.transpose(-3, -2) for x in (q / math.sqrt(q.shape[-1]), k, nonlinearity(phi)(v)))
    if not causal:
        return (q @ (k.mT @ v)).transpose(-3, -2)
    length = CHUNK * -(-max(n_queries, k.shape[-2]) // CHUNK)
    q, k, v = (F.pad(x, (0, 0, 0, length - x.shape[-2])).unflatten(-2, (-1, CHUNK))
               for x in (q, k, v))
    sums = (k.mT @ v).to(torch.promote_types(dtype, torch.float32))
    before = (sums.cumsum(-3) - sums).to(dtype)
    z = q @ before + (q @ k.mT).tril() @ v
    return z.flatten(-3, -2)[..., :n_queries, :].transpose(-3, -2)
