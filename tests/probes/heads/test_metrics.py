"""Metrics of patterns equal loops over queries and keys that spell out their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from latentcode.probes.heads.metrics import METRICS, PatternMetrics, as_shares, looks_ahead
from latentcode.prompts.texts import TextBatch

N_HEADS = 3


def make_batch(lengths: tuple[int, ...], n_words: int = 4) -> TextBatch:
    width = max(lengths)
    tokens = torch.randint(n_words, (len(lengths), width),
                           generator=torch.Generator().manual_seed(0))
    read = torch.arange(width)[None] < torch.tensor(lengths)[:, None] - 1
    return TextBatch(tokens, torch.tensor(lengths), tokens.roll(-1, 1), read,
                     torch.arange(len(lengths)))


def make_pattern(batch: TextBatch) -> torch.Tensor:
    width = batch.tokens.shape[1]
    scores = torch.randn(len(batch), N_HEADS, width, width,
                         generator=torch.Generator().manual_seed(1))
    past = torch.ones(width, width, dtype=torch.bool).tril()
    return scores.where(past, -torch.inf).softmax(-1)


def by_hand(a: np.ndarray, tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and numbers of queries of one head on one text."""
    sums, n = np.zeros(len(METRICS)), np.zeros(len(METRICS))
    for q in range(1, len(tokens)):
        earlier = [k for k in range(q) if tokens[k] == tokens[q]]
        entropy = -sum(p * math.log(p) for p in a[q, :q + 1] if p > 0)
        sums += [a[q, q - 1], sum(a[q, k] for k in earlier), sum(a[q, k + 1] for k in earlier),
                 a[q, 0], sum(a[q, k] * (q - k) for k in range(q)), entropy,
                 entropy / math.log(q + 1)]
        n += [1, bool(earlier), bool(earlier), 1, 1, 1, 1]
    return sums, n


@pytest.mark.parametrize("lengths", [(9, 6, 2), (130, 1, 70)])
def test_metrics_equal_loops_over_queries_and_keys(lengths: tuple[int, ...]) -> None:
    batch = make_batch(lengths)
    pattern = make_pattern(batch)
    metrics = PatternMetrics(batch)
    sums = metrics.sums(pattern).numpy()
    for text, length in enumerate(lengths):
        for head in range(N_HEADS):
            expected, n = by_hand(pattern[text, head].double().numpy(),
                                  batch.tokens[text, :length].tolist())
            np.testing.assert_allclose(sums[text, head], expected, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(metrics.n[text].numpy(), n)


def test_codes_of_other_normalisations_become_shares() -> None:
    codes = torch.tensor([[[[0.0, 0.0], [-3.0, 1.0]]]])
    torch.testing.assert_close(as_shares(codes), torch.tensor([[[[0.0, 0.0], [0.75, 0.25]]]]))


def test_attention_to_later_tokens_is_seen() -> None:
    pattern = make_pattern(make_batch((5, 5)))
    assert float(looks_ahead(pattern)) == 0.0
    pattern[1, 2, 0, 3] = 0.25
    assert float(looks_ahead(pattern)) == 0.25
