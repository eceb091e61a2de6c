"""The rotation that brings points of the same instances closest to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latentcode.errors import ProbeError, check


@dataclass(frozen=True)
class Rotation:
    """y -> (y - mean_y) R scale + mean_x, R orthogonal: B's points in the coordinates of A."""

    mean_y: np.ndarray
    rotation: np.ndarray
    scale: float
    mean_x: np.ndarray

    def apply(self, y: np.ndarray) -> np.ndarray:
        """Return the points y [N, d] of B in the coordinates of A."""
        return np.asarray((y - self.mean_y) @ self.rotation * self.scale + self.mean_x)


def fit_rotation(x: np.ndarray, y: np.ndarray) -> Rotation:
    """argmin over R, s of |X - s Y R|, both centred: orthogonal Procrustes (Schönemann 1966).

    x, y  points [N, d] of the same instances. `ProbeError` for different shapes.
    """
    check(x.shape == y.shape, f"points have shapes {x.shape} and {y.shape}; expected the same",
          ProbeError)
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    u, s, v = np.linalg.svd((y - mean_y).T @ (x - mean_x))
    power = np.square(y - mean_y).sum()
    return Rotation(mean_y, u @ v, float(s.sum() / power) if power > 0 else 0.0, mean_x)
