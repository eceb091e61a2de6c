"""Affine maps and LayerNorm, of one model or of an ensemble whose members are computed together.

The members of an ensemble have weights of their own: their weights and activations alike have a
leading axis, written *E.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

LAYER_NORM_EPSILON = 1e-6


def _is_one_on_gpu(w: Tensor) -> bool:
    """Whether an ensemble has one member, as whatever is trained alone on a GPU; on a CPU, where
    that is no ensemble, one of one member stays bit for bit what it was."""
    return len(w) == 1 and w.device.type == "cuda"


def dense(
    x: Float[Tensor, "*E B T n"],
    w: Float[Tensor, "*E n m"],
    b: Float[Tensor, "*E m"] | None = None,
) -> Float[Tensor, "*E B T m"]:
    """y = x w + b, in one (batched) matrix product."""
    if w.ndim == 2:
        return F.linear(x, w.T, b)
    if _is_one_on_gpu(w):  # the product of one model adds the bias as it goes
        return dense(x.squeeze(0), w.squeeze(0), None if b is None else b.squeeze(0)).unsqueeze(0)
    rows = x.flatten(1, -2)
    y = torch.bmm(rows, w) if b is None else torch.baddbmm(b[:, None], rows, w)
    return y.unflatten(1, x.shape[1:-1])


def layer_norm(
    x: Float[Tensor, "*E B T D"], w: Float[Tensor, "*E D"], b: Float[Tensor, "*E D"]
) -> Float[Tensor, "*E B T D"]:
    """y = (x - mean) / sqrt(var + 1e-6) * w + b over the last axis, biased variance."""
    shape = (x.shape[-1],)
    if w.ndim == 1:
        return F.layer_norm(x, shape, w, b, LAYER_NORM_EPSILON)
    if _is_one_on_gpu(w):
        return layer_norm(x.squeeze(0), w.squeeze(0), b.squeeze(0)).unsqueeze(0)
    normalized = F.layer_norm(x, shape, eps=LAYER_NORM_EPSILON)
    return torch.addcmul(b[:, None, None], normalized, w[:, None, None])
