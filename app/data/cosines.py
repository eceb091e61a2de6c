"""How alike are codes of the same value of a label, beside shuffled labels?"""

from __future__ import annotations

import numpy as np
import pandas as pd

SHUFFLES = 20
"""How often labels are shuffled among instances."""


def unit_deviations(points: np.ndarray) -> np.ndarray:
    """Return (a - mean a) / |a - mean a| of points [N, H]; zero where a is the mean."""
    return unit_vectors(points - points.mean(axis=0))


def unit_vectors(points: np.ndarray) -> np.ndarray:
    """Return a / |a| of points [N, H]; zero where a is."""
    length = np.linalg.norm(points, axis=1, keepdims=True)
    return np.divide(points, length, out=np.zeros_like(points), where=length > 0)


def same_value_cosines(unit: np.ndarray, values: pd.Series, seed: int = 0) -> pd.DataFrame:
    """Return the mean cosine of two different rows of each value, beside shuffled values.

    unit    [N, H], rows of length 1
    values  [N]; for a control they are shuffled among the rows

    One row per value that has at least two rows, with `cosine` and the largest of `SHUFFLES`
    controls, `shuffled`.
    """
    index, names = pd.factorize(values, sort=True)
    rng = np.random.default_rng(seed)
    true = _by_value(unit, index, len(names))
    shuffled = np.max([_by_value(unit, rng.permutation(index), len(names))
                       for _ in range(SHUFFLES)], axis=0)
    table = pd.DataFrame({"cosine": true, "shuffled": shuffled}, index=names)
    return table[table["cosine"].notna()]


def _by_value(unit: np.ndarray, index: np.ndarray, n_values: int) -> np.ndarray:
    """Return (|sum_i u_i|^2 - sum_i |u_i|^2) / (n (n - 1)) over the n rows of each value, [V].

    NaN for fewer than two rows.
    """
    sums = np.stack([np.bincount(index, weights=column, minlength=n_values)
                     for column in unit.T], axis=1)
    n = np.bincount(index, minlength=n_values).astype(float)
    own = np.bincount(index, weights=np.square(unit).sum(axis=1), minlength=n_values)
    pairs = np.where(n > 1, n * (n - 1), np.nan)
    cosines: np.ndarray = (np.square(sums).sum(axis=1) - own) / pairs
    return cosines
