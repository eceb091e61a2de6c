"""A few latent codes of made-up numbers, and whether two are the same."""

from __future__ import annotations

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.tasks.pairs import Pair


def make_codes(
    n: int = 12, layers: tuple[int, ...] = (0, 2), heads: int = 3, residuals: bool = True,
    seed: int = 0
) -> LatentCodes:
    rng = np.random.default_rng(seed)
    pairs = (Pair("response.0->panel.7", "one", 0), Pair("response.1->panel.7", "two", 1),
             Pair("query->query", "three"))
    labels = pd.DataFrame({
        "rule_0": rng.choice(["sum", "difference ¬"], n), "rule_1": rng.integers(0, 3, n),
        "target": rng.random(n, dtype=np.float32), "split": np.full(n, "ood", dtype=object),
        "combination": rng.choice(["0 ∨ 1", "2 ∨ 3"], n)})
    return LatentCodes(
        rng.normal(size=(n, len(layers), 3, heads)).astype(np.float32), labels, pairs, layers,
        {"run": "my-run", "split": "ood", "seed": 3, "nested": {"a": [1, None, 0.5]}},
        rng.normal(size=(n, len(layers), 2, 5)).astype(np.float32) if residuals else None,
        (0, 1, 1) if residuals else ())


def assert_same(a: LatentCodes, b: LatentCodes) -> None:
    np.testing.assert_array_equal(a.scores, b.scores)
    assert a.scores.dtype == b.scores.dtype
    pd.testing.assert_frame_equal(a.labels, b.labels)
    assert (a.pairs, a.layers, dict(a.meta), a.query_of_pair) == (
        b.pairs, b.layers, dict(b.meta), b.query_of_pair)
    assert (a.residuals is None) == (b.residuals is None)
    if a.residuals is not None and b.residuals is not None:
        np.testing.assert_array_equal(a.residuals, b.residuals)
