"""Where a token stands: T5-style relative bias, rotary queries and keys."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.errors import check

MOST_PAIRS = 128**2
"""Pairs up to which a one-hot matrix of their buckets is kept on a GPU."""


@lru_cache(maxsize=64)
def relative_position_buckets(
    n_query: int, n_key: int, n_buckets: int, max_distance: int
) -> np.ndarray:
    """Bucket of n = max(q - k, 0) for every query q and key k: int64 [n_query, n_key].

    n < m: n;  else min(n_buckets - 1, m + int(log(n / m) / log(max_distance / m) *
    (n_buckets - m))) with m = n_buckets // 2 (Raffel et al., 2020, one-directional). Every key
    at or after the query shares bucket 0, also where nothing is masked, as in the official code.
    The logarithm is taken in float32 as the official code does: in float64 some distances would
    fall into the next bucket.
    """
    distance = np.maximum(np.arange(n_query)[:, None] - np.arange(n_key)[None, :], 0)
    exact = n_buckets // 2
    ratio = distance.astype(np.float32) / exact + np.finfo(np.float32).eps
    logarithmic = np.log(ratio) / np.log(max_distance / exact) * (n_buckets - exact)
    far = np.minimum(exact + logarithmic.astype(np.int32), n_buckets - 1)
    buckets = np.where(distance < exact, distance, far).astype(np.int64)
    buckets.setflags(write=False)
    return buckets


@cache  # a graph goes on reading from where it found them
def _buckets_on(
    n_query: int, n_key: int, n_buckets: int, max_distance: int, device: torch.device,
    one_hot: torch.dtype | None = None,
) -> Tensor:
    """Return the buckets [Q, K], or as one-hot columns of a type [n_buckets, Q K]."""
    # Copied to a device once: a step that is captured as a graph must not copy from the host. What
    # is kept must be fit for training, also where the first who asks is not training.
    buckets = relative_position_buckets(n_query, n_key, n_buckets, max_distance)
    with torch.inference_mode(False):
        if one_hot is None:
            return torch.tensor(buckets, device=device)
        columns = np.arange(n_buckets)[:, None] == buckets.reshape(1, -1)
        return torch.tensor(columns, dtype=one_hot, device=device)


def _buckets(
    n_query: int, n_key: int, n_buckets: int, max_distance: int, device: torch.device,
    one_hot: torch.dtype | None = None,
) -> Tensor:
    # What is kept is no part of a program. The decorator would import torch's compiler, for
    # seconds on a slow core, in every process that opens a model.
    kept = torch.compiler.disable(_buckets_on) if torch.compiler.is_compiling() else _buckets_on
    return kept(n_query, n_key, n_buckets, max_distance, device, one_hot)


def _by_product(table: Tensor, n_pairs: int) -> bool:
    """Whether a product replaces an index: the gradient of the latter is a sort on a GPU."""
    return table.device.type == "cuda" and n_pairs <= MOST_PAIRS


def relative_bias(
    table: Float[Tensor, "*E H n_buckets"], n_query: int, n_key: int, max_distance: int
) -> Float[Tensor, "*E 1 H Q K"]:
    """bias_hqk = table[h, bucket(q - k)], added to the scores before normalisation."""
    if _by_product(table, n_query * n_key):
        columns = _buckets(
            n_query, n_key, table.shape[-1], max_distance, table.device, table.dtype)
        # As exact as the index but where TF32 is allowed, in which scores are rounded likewise.
        with torch.autocast(table.device.type, enabled=False):
            return (table @ columns).unflatten(-1, (n_query, n_key)).unsqueeze(-4)
    buckets = _buckets(n_query, n_key, table.shape[-1], max_distance, table.device)
    return table[..., buckets].unsqueeze(-4)


def relative_bias_rows(
    table: Float[Tensor, "H n_buckets"], query: Int[Tensor, "B P"], n_query: int, n_key: int,
    max_distance: int,
) -> Float[Tensor, "B H P K"]:
    """bias_bhpk = table[h, bucket(q_bp - k)]: rows of `relative_bias`, without the others."""
    # A bucket depends on the distance alone, and the first key is at every distance.
    of_distance = _buckets(n_query, 1, table.shape[-1], max_distance, table.device)[:, 0]
    keys = torch.arange(n_key, device=query.device)
    return table[:, of_distance[(query[..., None] - keys).clamp(min=0)]].transpose(0, 1)


def rotary(
    x: Float[Tensor, "*E B T H d"], first: int = 0, base: float = 10_000.0
) -> Float[Tensor, "*E B T H d"]:
    """x' = x cos(t w) + rotate(x) sin(t w), w_i = base^(-2i / d) (Su et al., 2024).

    The tokens stand at t = first, first + 1, ... The two halves of the head dimension form the
    rotated pairs. Angles are float32 at least.
    """
    d = x.shape[-1]
    check(d % 2 == 0, f"rotary positions need an even head dimension; got {d}")
    dtype = torch.promote_types(x.dtype, torch.float32)
    frequency = base ** (-torch.arange(0, d, 2, device=x.device, dtype=dtype) / d)
    positions = torch.arange(first, first + x.shape[-3], device=x.device, dtype=dtype)
    angle = positions[:, None] * frequency
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]  # [T, 1, d/2]
    one, other = x.to(dtype).chunk(2, dim=-1)
    turned = torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)
    return turned.to(x.dtype)
