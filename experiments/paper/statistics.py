"""Intervals and exact tests that the rules of the claims ask for: numbers in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from latentcode.errors import check

LEVEL = 0.95
"""Level of the intervals."""
MOST_EXCHANGES = 5_000_000
"""Exchanges that are held at once: some 40 MB."""


@dataclass(frozen=True)
class Difference:
    """A difference of two means with its interval and two-sided p; arrays if its parts are."""

    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


def welch(
    mean: object, error: object, n: object, of_mean: object, of_error: object, of_n: object
) -> Difference:
    """(mean - mean') +- t(df) sqrt(e^2 + e'^2), df = (e^2 + e'^2)^2 / (e^4/(n-1) + e'^4/(n'-1)).

    mean, error, n           of one group, its standard error and number of values
    of_mean, of_error, of_n  of the group it is compared with, whose error is above 0
    """
    values = (mean, error, n, of_mean, of_error, of_n)
    m, e, k, m_, e_, k_ = (np.asarray(value, dtype=np.float64) for value in values)
    variance = e**2 + e_**2
    df = variance**2 / (e**4 / (k - 1.0) + e_**4 / (k_ - 1.0))
    half = stdtrit(df, (1.0 + LEVEL) / 2.0) * np.sqrt(variance)
    p = 2.0 * stdtr(df, -np.abs(m - m_) / np.sqrt(variance))
    return Difference(m - m_, m - m_ - half, m - m_ + half, p)


def narrowest_half(n: float, of_n: int) -> float:
    """Return half of the narrowest interval of `welch`, in units of the other group's error.

    The narrowest over all errors that n values may have, up to three times that error; n may be
    infinite.
    """
    return float(welch(0.0, np.linspace(0.0, 3.0, 3_001), n, 0.0, 1.0, of_n).high.min())


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of at least two values and its t interval, mean +- t(n - 1) s / sqrt(n)."""
    n = len(values)
    mean = float(np.mean(values))
    half = float(stdtrit(n - 1, (1.0 + LEVEL) / 2.0) * np.std(values, ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


class Exchanges(NamedTuple):
    """mean(higher) - mean(lower), and how many of all exchanges of labels reach it."""

    difference: float
    above: int
    """Exchanges with a difference at least as large."""
    below: int
    """Exchanges with a difference at most as large."""
    total: int


def exchange_labels(pairs: Sequence[tuple[pd.Series, pd.Series]]) -> Exchanges:
    """Is mean(higher) > mean(lower)? Every exchange of labels within each pair, counted.

    pairs  (higher, lower): values with the seed of their split as index. Of several pairs it is
           the mean over pairs that is compared.

    Labels are exchanged among the values of one split where every split has two or more of either
    side, otherwise among all values of the pair. `ConfigError` where there are too many to count.
    """
    # The difference is a sum of independent parts, one for each group within which labels are
    # exchanged. The sums of half of the parts are sorted, those of the others looked up in them.
    parts = sorted((part for higher, lower in pairs for part in _parts(higher, lower)), key=len)
    left, right = np.zeros(1), np.zeros(1)
    for part in reversed(parts):
        if len(left) > len(right):
            left, right = right, left
        _check_number(len(left) * len(part))
        left = np.add.outer(left, part).ravel()
    right.sort()
    total = len(left) * len(right)
    observed = sum(float(part[0]) for part in parts)
    # Equal differences may be sums of the same numbers in another order.
    slack = 1e-12 * max(float(side.abs().max()) for pair in pairs for side in pair)
    above = total - int(np.searchsorted(right, observed - slack - left).sum())
    below = int(np.searchsorted(right, observed + slack - left, side="right").sum())
    return Exchanges(observed / len(pairs), above, below, total)


def _parts(higher: pd.Series, lower: pd.Series) -> list[np.ndarray]:
    """Return what each group adds to mean(higher) - mean(lower), for every exchange within it.

    The first one is what was observed.
    """
    splits = sorted({*higher.index, *lower.index})
    groups = [(higher[higher.index == split].tolist(), lower[lower.index == split].tolist())
              for split in splits]
    if any(min(len(above), len(below)) < 2 for above, below in groups):
        groups = [(higher.tolist(), lower.tolist())]
    parts = []
    for above, below in groups:
        n = math.comb(len(above) + len(below), len(above))
        _check_number(n)
        taken = np.fromiter(map(sum, combinations(above + below, len(above))), np.float64, n)
        left_out = sum(above + below) - taken
        parts.append(taken / len(higher) - left_out / len(lower))
    return parts


def _check_number(n: int) -> None:
    check(n <= MOST_EXCHANGES, f"an exact permutation test has {n} exchanges of labels in one "
          f"group; expected at most {MOST_EXCHANGES}: fewer runs")
