"""What do heads attend to? Standard metrics of the patterns of all heads, in one forward pass.

Of a head with the pattern a_qk (a softmax: sum_k a_qk = 1), token x_q at query q, all q >= 1:

    previous_token      a_q,q-1
    duplicate_token     sum_k a_qk over k < q with x_k = x_q
    induction           sum_k a_qk over 1 <= k <= q with x_k-1 = x_q, k - 1 < q
    first_token         a_q,0
    distance            sum_k a_qk (q - k), in tokens
    entropy             -sum_k a_qk ln a_qk, in nats
    normalized_entropy  the same over ln(q + 1), the entropy of a query that attends to all alike

A metric is the mean over the queries of all texts. Queries without such a key (no earlier
occurrence of their token) are left out, so that a head that always attends to one scores 1; the
first token, which can attend to nothing but itself, is left out everywhere. The first three are the
patterns of TransformerLens' `detect_head`, which divides by all queries instead; induction is the
prefix matching of Olsson et al., "In-context Learning and Induction Heads" (2022), on texts as
they are in place of repeated random tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.probes.heads.batches import TextBatch

METRICS: Mapping[str, str] = {
    "previous_token": "attention to the token before",
    "duplicate_token": "attention to earlier occurrences of the same token",
    "induction": "attention to what followed earlier occurrences of the same token",
    "first_token": "attention to the first token",
    "distance": "mean distance attended, in tokens",
    "entropy": "entropy of attention, in nats",
    "normalized_entropy": "entropy over that of equal attention to all keys"}
"""Metrics of patterns, in the order of their axis."""
N_SUMMED = 5
"""So many of them, the first, are sums over keys."""
QUERIES_AT_ONCE = 64
"""Queries whose logarithms are taken at once, up to the last key that they see."""
LEAST = 1e-30


@dataclass(frozen=True)
class Matching:
    """Which keys count for which queries of a batch, the same for all layers and heads.

    keys     what each key counts for each query in the metrics that are sums over keys, zero where
             the query is left out
    queries  1, and 1 / ln(q + 1), for each query that is not left out: what its entropy counts
    n        how many queries each metric is a mean over, of each text
    """

    keys: Float[Tensor, "B 5 QK"]
    queries: Float[Tensor, "B Q 2"]
    n: Float[Tensor, "B 7"]

    @classmethod
    def of(cls, batch: TextBatch) -> Matching:
        """Return what counts in a batch, causal and padded on the right."""
        tokens, lengths = batch.tokens, batch.lengths
        n_texts, width = tokens.shape
        place = torch.arange(width, device=tokens.device)
        query, key = place[:, None], place[None]
        inside = (place[None] < lengths[:, None]) & (place >= 1)  # [B, Q]
        same = (tokens[:, :, None] == tokens[:, None, :]) & (key < query)  # [B, Q, K]
        # Key k counts where k - 1 is an earlier occurrence.
        following = torch.zeros_like(same)
        following[:, :, 1:] = same[:, :, :-1]
        keys = torch.empty(n_texts, N_SUMMED, width, width, device=tokens.device)
        for metric, counts in enumerate((
                key == query - 1, same, following, key == 0, (query - key).clamp(min=0))):
            keys[:, metric] = counts * inside[:, :, None]
        n = torch.empty(n_texts, len(METRICS), device=tokens.device)
        n[:] = inside.sum(1)[:, None]
        for metric, found in ((1, same), (2, following)):
            n[:, metric] = (found.any(-1) & inside).sum(1)
        queries = torch.stack([inside, inside / (place + 1.0).log().clamp(min=1e-9)], dim=-1)
        return cls(keys.flatten(2), queries, n)

    def sums(self, pattern: Float[Tensor, "B H Q K"]) -> Float[Tensor, "B H 7"]:
        """Return the sums over queries of the metrics of all heads of a layer."""
        pattern = pattern.to(self.keys.dtype)
        summed = torch.bmm(pattern.flatten(2), self.keys.transpose(1, 2))
        return torch.cat([summed, torch.bmm(_entropy(pattern), self.queries)], dim=-1)


def _entropy(pattern: Float[Tensor, "B H Q K"]) -> Float[Tensor, "B H Q"]:
    """Return -sum_k a_qk ln a_qk of causal patterns, without the logarithms of later keys."""
    n_query = pattern.shape[2]
    found = pattern.new_empty(pattern.shape[:3])
    for first in range(0, n_query, QUERIES_AT_ONCE):
        end = min(first + QUERIES_AT_ONCE, n_query)
        a = pattern[:, :, first:end, :end]
        # 0 ln 0 = 0, and a logarithm of what is almost 0 is finite.
        found[:, :, first:end] = -torch.einsum("bhqk,bhqk->bhq", a, a.clamp(min=LEAST).log_())
    return found


def as_shares(pattern: Float[Tensor, "B H Q K"]) -> Float[Tensor, "B H Q K"]:
    """|a_qk| / sum_j |a_qj|: how much of a code of any normalisation, in size, is on each key.

    Zero where a query has no code at all.
    """
    size = pattern.abs()
    total = size.sum(-1, keepdim=True)
    return size / torch.where(total > 0, total, 1.0)


def looks_ahead(pattern: Float[Tensor, "B H Q K"]) -> Float[Tensor, ""]:
    """Return how much the first tokens, which may see none but themselves, attend to others."""
    return pattern[:, :, 0, 1:].abs().sum()
