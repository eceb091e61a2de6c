"""What is a pattern like as a whole? A few numbers per head, however many tokens there are.

name            numbers  of the codes a [H, T, T] of all queries over all keys
attn_sum        H        1/T sum_q sum_k a_qk; 1 for a softmax, of which it says nothing
entropy         H        1/T sum_q -sum_k p_qk ln p_qk, p = |a| / sum_k |a|, in nats
distance        H        1/T sum_q sum_k p_qk |q - k|, in tokens
first_token     H        1/(T - 1) sum_{q > 0} a_q0, what goes to the first token
previous_token  H        1/(T - 1) sum_{q > 0} a_q,q-1
attn_log_det    H        1/T sum_i ln |a_ii|, the logarithm of det(a) per token (LLM-Check,
                         Sriramanan et al. 2024, NeurIPS)
lap_eigvals     H k      the k largest eigenvalues of the Laplacian (LapEigvals, Binkowski et al.
                         2025, arXiv:2502.17598)
mean_residual   D        of the residual streams x [T, D] that enter the layer, 1/T sum_t x_t: what
                         a text leaves anywhere, where its last token's stream may have lost it

They are features of every question that takes features (`latentcode.codes.features`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import check, check_count

TOP_K = 10
"""Eigenvalues of each head; the paper's scores hardly differ between 5 and 100."""
LEAST = 1e-12
"""What a smaller code on the diagonal counts as, whose logarithm would be infinite."""

LEAST_TOKENS: Mapping[str, int] = {"first_token": 2, "previous_token": 2, "lap_eigvals": TOP_K}
"""Tokens that a text needs, where one is too few."""

Pattern = Float[Tensor, "B H T T"]


def attn_sum(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/T sum_q sum_k a_qk; a row that sums to 1 but for rounding counts as 1.

    How the rows of a softmax are rounded depends on their length, which a probe would read.
    """
    sums = codes.float().sum(-1)
    rounding = max(4.0 * torch.finfo(codes.dtype).eps, 1e-5)
    return torch.where((sums - 1.0).abs() <= rounding, 1.0, sums).mean(-1)


def entropy(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/T sum_q -sum_k p_qk ln p_qk, p = |a| / sum_k |a|; 0 for a query without any code."""
    return torch.special.entr(_shares(codes)).sum(-1).mean(-1)


def distance(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/T sum_q sum_k p_qk |q - k|."""
    at = torch.arange(codes.shape[-1], device=codes.device)
    return (_shares(codes) * (at[:, None] - at).abs()).sum(-1).mean(-1)


def first_token(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/(T - 1) sum_{q > 0} a_q0."""
    check_tokens("first_token", codes.shape[-1])
    return codes[..., 1:, 0].float().mean(-1)


def previous_token(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/(T - 1) sum_{q > 0} a_q,q-1."""
    check_tokens("previous_token", codes.shape[-1])
    return codes.diagonal(-1, -2, -1).float().mean(-1)


def attn_log_det(codes: Pattern) -> Float[Tensor, "B H"]:
    """1/T sum_i ln |a_ii|; a |a_ii| below `LEAST` counts as that."""
    return codes.diagonal(0, -2, -1).float().abs().clamp(min=LEAST).log().mean(-1)


def lap_eigvals(codes: Pattern, k: int = TOP_K) -> Float[Tensor, "B Hk"]:
    """The k largest eigenvalues of L = D - A, d_ii = sum_{u >= i} a_ui / (T - i), i from 0.

    d_ii is what later tokens and itself attend to token i in the mean (equation 2 of the paper). A
    is lower triangular, so the eigenvalues are those of the diagonal, d_ii - a_ii; the largest come
    first. (The authors' released code puts a_ii of the next layer in place of a_ii.)

    `ConfigError` for fewer than k tokens, and for codes of later tokens, which make L another one.
    """
    check_count("k", k)
    check_tokens("lap_eigvals", codes.shape[-1], k)
    check(not bool(codes.triu(1).any()), "lap_eigvals are eigenvalues of causal attention, and "
          "queries of this model attend to later tokens; expected a causal model, or features of "
          "your own (lc.register_features)")
    weights = codes.float()
    at = torch.arange(weights.shape[-1], device=weights.device)
    degrees = weights.sum(-2) / (len(at) - at)
    return (degrees - weights.diagonal(0, -2, -1)).topk(k, dim=-1).values.flatten(1)


def _shares(codes: Pattern) -> Pattern:
    weights = codes.float().abs()
    return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def check_tokens(name: str, n: int, least: int | None = None, of: str = "this one") -> None:
    """Raise `ConfigError` for a text of n tokens that are too few for what an aggregate is of.

    least  default: that of `LEAST_TOKENS`
    of     what the text is called
    """
    least = LEAST_TOKENS.get(name, 1) if least is None else least
    fewer = (", or fewer eigenvalues: lc.register_features(\"few_eigvals\")(functools.partial("
             "latentcode.codes.aggregates.lap_eigvals, k=5))" if name == "lap_eigvals" else "")
    check(n >= least, f"{name} needs texts of {least} tokens, and {of} has {n}; expected longer "
          f"ones{fewer}")


def mean_residual(stream: Float[Tensor, "B T D"]) -> Float[Tensor, "B D"]:
    """1/T sum_t x_t."""
    return stream.float().mean(1)


MEAN_RESIDUAL = mean_residual.__name__
AGGREGATES: Mapping[str, Callable[[Tensor], Tensor]] = {
    of.__name__: of for of in (attn_sum, entropy, distance, first_token, previous_token,
                               attn_log_det, lap_eigvals)}
"""By name, those of patterns."""
