"""Features of 16 and of 46,656 numbers, brought to the same number of dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentcode.errors import ProbeError, check
from latentcode.probes.common.features import ROUNDING


@dataclass(frozen=True)
class Reduction:
    """z = (x - mean) V, with V the first principal axes of the training points.

    mean  float64 [d]
    axes  V, float64 [d, w]; w is 0 for features that do not vary
    """

    mean: np.ndarray
    axes: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the coordinates of points [N, d], float32 [N, w]; the first vary most."""
        return np.asarray((x - self.mean) @ self.axes, dtype=np.float32)


def fit_reduction(x: np.ndarray, most: int) -> Reduction:
    """Return the first `most` principal axes of points x [N, d], or as many as vary.

    An axis along which points differ by less than `ROUNDING` of their norm holds the rounding of
    float32. `ProbeError` for values that are not finite.
    """
    check(bool(np.isfinite(x).all()), "the values are not all finite", ProbeError)
    points = np.asarray(x, dtype=np.float64)
    mean = points.mean(axis=0)
    norm = np.sqrt(np.square(points).sum(axis=1).mean())
    points = points - mean
    variance, axes = np.linalg.eigh(points.T @ points / len(points))
    deviation = np.sqrt(np.maximum(variance[::-1], 0.0))
    n_kept = min(int((deviation > ROUNDING * norm).sum()), most)
    return Reduction(mean, axes[:, ::-1][:, :n_kept])
