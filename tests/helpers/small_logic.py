"""Fuzzy logic as slow code reads it."""

from __future__ import annotations

import numpy as np
import torch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slow_function(signs: np.ndarray, x: np.ndarray) -> np.float32:
    """f(x) in plain Python on float32 numbers: signs [K, L], x [L]."""
    one = np.float32(1)
    return max(min(v if s else one - v for s, v in zip(term, x, strict=True)) for term in signs)
