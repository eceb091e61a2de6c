"""The attention core as pure functions: scores, code, value network.

1. `attention_scores`      S_hqk = q_qh . k_kh / sqrt(d) + bias_hqk, masked
2. `normalize`             the latent code a_hqk, over keys or over heads
3. `apply_value_network`   z_qh, what the code's value network makes of the values

Positions enter as a relative bias of the scores (`relative_bias`), or as queries and keys that are
turned (`rotary`). The output of a layer is sum_h W_O^h z_qh + b_O. Every attention kind of the
paper is a choice in 2 and 3. Fast implementations are tested against these functions in float64.

`*E` stands for nothing, or for the leading axis of an ensemble whose members are computed
together, each with its own weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentcode.errors import ConfigError, check
from latentcode.models.config import (
    NONLINEARITIES,
    NORMALIZATIONS,
    VALUE_NETWORKS,
    Normalization,
)

RMS_EPSILON = 1e-6
"""Added to the mean square over heads, as in the official code."""


def _identity(x: Tensor) -> Tensor:
    return x


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


_NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": _identity,
    "relu": torch.relu,
    "gelu": _gelu_tanh,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def nonlinearity(name: str) -> Callable[[Tensor], Tensor]:
    """Return phi by name; `gelu` is the tanh approximation. `UnknownNameError` lists the names."""
    return NONLINEARITIES.find(name) or _NONLINEARITIES[name]


def rms_head(scores: Float[Tensor, "*E B H Q K"]) -> Float[Tensor, "*E B H Q K"]:
    """RMSHead: a_hqk = S_hqk / sqrt(mean_h S_hqk^2 + 1e-6) (paper, Eq. 7), without a scale."""
    return scores * torch.rsqrt(scores.square().mean(dim=-3, keepdim=True) + RMS_EPSILON)


def _softmax(scores: Tensor) -> Tensor:
    return scores.softmax(dim=-1)


def _softmax_rms_head(scores: Tensor) -> Tensor:
    return rms_head(scores.softmax(dim=-1))


_NORMALIZATIONS: dict[str, Normalization] = {
    "softmax": Normalization(_softmax, masked="lowest"),
    "rms_head": Normalization(rms_head, masked="zero"),
    "none": Normalization(_identity, masked="zero"),
    "softmax_rms_head": Normalization(_softmax_rms_head, masked="lowest"),
}


def attention_scores(
    q: Float[Tensor, "*E B Q H d"],
    k: Float[Tensor, "*E B K H d"],
    bias: Float[Tensor, "*#E #B #H Q K"] | None = None,
    mask: Bool[Tensor, "*#E #B #H Q K"] | None = None,
    normalization: str = "softmax",
) -> Float[Tensor, "*E B H Q K"]:
    """S_hqk = q_qh . k_kh / sqrt(d) + bias_hqk (paper, Eq. 1), masked where `mask` is False.

    A masked score takes the value that the normalisation reads as "absent": the most negative
    number for a softmax over keys, 0 otherwise (official semantics; the bias is added first), and
    for a registered normalisation what it says. `ConfigError` for one that takes no mask.
    """
    scores = torch.einsum("...qhd,...khd->...hqk", q / math.sqrt(q.shape[-1]), k)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        masked = (NORMALIZATIONS.find(normalization) or _NORMALIZATIONS[normalization]).masked
        if masked is None:
            raise ConfigError(f"normalization {normalization!r} was registered with masked=None; "
                              "expected no mask")
        absent = torch.finfo(scores.dtype).min if masked == "lowest" else 0.0
        scores = torch.where(mask, scores, absent)
    return scores


def normalize(scores: Float[Tensor, "*E B H Q K"], kind: str) -> Float[Tensor, "*E B H Q K"]:
    """a = sigma(S), the latent code (paper, Eq. 1 and 7).

    `softmax` over keys, `rms_head` over heads, `none`, `softmax_rms_head`: softmax over keys,
    then RMSHead over heads (Table A1's last HYLA row, whose order the paper does not state), or
    one that is registered. `UnknownNameError` lists the kinds.
    """
    return (NORMALIZATIONS.find(kind) or _NORMALIZATIONS[kind]).fn(scores)


def dropout_mask(
    shape: Sequence[int],
    probability: float,
    form: str,
    generator: torch.Generator | Sequence[torch.Generator] | Iterator[Tensor] | None = None,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "*E #B #H Q K"]:
    """m_qk / (1 - p), m ~ Bernoulli(1 - p): the factor of a code of `shape` [B, H, Q, K].

    `shared` draws one mask [1, 1, Q, K] for the whole batch and all heads, as the official code
    does; `independent` draws one per score. A HYLA value network contracts the same dropped code
    twice, so a kept edge counts (1 / (1 - p))^2 there, as it does officially. A sequence of
    generators draws the masks of the members of an ensemble, each as it would draw its own alone.
    An iterator gives factors that were drawn beforehand, one at each call.
    """
    if isinstance(generator, Iterator):
        return next(generator)
    if form == "shared":
        shape = (1, 1, *shape[2:])
    if isinstance(generator, Sequence):
        drawn = torch.stack([torch.rand(tuple(shape), device=device, generator=member)
                             for member in generator])
    else:
        drawn = torch.rand(tuple(shape), device=device, generator=generator)
    return (drawn >= probability).to(dtype) / (1.0 - probability)


def apply_value_network(
    code: Float[Tensor, "*E B H Q K"],
    v: Float[Tensor, "*E B K H d"],
    kind: str,
    phi: Callable[[Tensor], Tensor] = _identity,
    w_v2: Float[Tensor, "*E H d d"] | None = None,
    hook_hidden: Callable[[Tensor], Tensor] | None = None,
    parameters: Mapping[str, Tensor] | None = None,
) -> Float[Tensor, "*E B Q H d"]:
    """z_qh, from which the layer's output is sum_h W_O^h z_qh + b_O.

    linear       z_qh = sum_k a_hqk phi(v_kh)                                     (Eq. 2)
    hyla         z_qh = sum_k a_hqk phi(t_qk),  t_qk = sum_h a_hqk v_kh           (Eq. 6)
    hyla_linear  as hyla with phi = identity                                      (A.1)
    deep         z_qh = sum_k a_hqk phi(sum_h a_hqk W'_h phi(t_qk))               (Eq. 10)

    `hook_hidden` sees the hidden units of the last hidden layer, [B, Q, K, d], and may replace
    them; there are none for `linear`. A registered kind is called with its `parameters`.
    `UnknownNameError` lists the kinds.
    """
    own = VALUE_NETWORKS.find(kind)
    if own is not None:
        seen = {"hook_hidden": hook_hidden or _identity} if own.sees_hidden else {}
        return own.fn(code, v, phi, **(parameters or {}), **seen)
    if kind == "linear":
        return torch.einsum("...hqk,...khd->...qhd", code, phi(v))
    hidden = _hidden(code, v, kind, phi, w_v2)
    if hook_hidden is not None:
        hidden = hook_hidden(hidden)
    return torch.einsum("...hqk,...qkd->...qhd", code, hidden)


def messages(
    code: Float[Tensor, "B H Q K"],
    v: Float[Tensor, "B K H d"],
    kind: str,
    phi: Callable[[Tensor], Tensor] = _identity,
    w_v2: Float[Tensor, "H d d"] | None = None,
) -> Float[Tensor, "B Q K H d"]:
    """m_qkh, what key k contributes to z_qh = sum_k m_qkh of `apply_value_network`.

    `ConfigError` for a registered kind, which need not be a sum over keys.
    """
    if VALUE_NETWORKS.find(kind) is not None:
        raise ConfigError(f"value network {kind!r} was registered as a function, and what each key "
                          "contributes to it is not known; expected linear, hyla, hyla_linear or "
                          "deep, to write messages")
    if kind == "linear":
        return torch.einsum("bhqk,bkhd->bqkhd", code, phi(v))
    return torch.einsum("bhqk,bqkd->bqkhd", code, _hidden(code, v, kind, phi, w_v2))


def _hidden(
    code: Tensor, v: Tensor, kind: str, phi: Callable[[Tensor], Tensor], w_v2: Tensor | None
) -> Float[Tensor, "*E B Q K d"]:
    """Return the units of the last hidden layer of the networks that codes generate."""
    hidden = torch.einsum("...hqk,...khd->...qkd", code, v)
    if kind != "hyla_linear":
        hidden = phi(hidden)
    if kind == "deep":
        assert w_v2 is not None, "the deep value network needs its second value matrix"
        # One d x d matrix per pair, smaller than H mapped hidden vectors while d < H.
        generated = torch.einsum("...bhqk,...hde->...bqkde", code, w_v2)
        hidden = phi(torch.einsum("...d,...de->...e", hidden, generated))
    return hidden


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
