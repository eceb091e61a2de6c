"""Is the picture of one layer that of the one before, turned? Planes brought to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd

from latentcode.errors import ProbeError, check
from latentcode.probes.common.rotation import fit_rotation
from latentcode.probes.knn_purity.neighbours import nearest, shared_neighbours
from latentcode.probes.knn_purity.purity import K, sampled
from latentcode.seeds import checked_seed


@dataclass(frozen=True)
class AlignedPlanes:
    """The planes of several layers in the coordinates of the first one.

    coordinates  layer -> float64 [N, 2], in rising order of the layers
    steps        one row per layer but the first: `before`, the layer that it was brought to; how
                 much of that layer's picture is `kept`, and `kept_shuffled`, where every point has
                 the place of another; which share of `neighbours` is kept, and of shuffled ones

    See `align_planes`.
    """

    coordinates: Mapping[int, np.ndarray]
    steps: pd.DataFrame

    def step(self, one: int, other: int) -> Mapping[str, float] | None:
        """Return the row of `steps` between two layers; None where no step leads from one to the
        other."""
        before, layer = sorted((one, other))
        rows = self.steps[(self.steps["before"] == before) & (self.steps["layer"] == layer)]
        return {str(name): float(rows[name].iloc[0]) for name in rows} if len(rows) else None


def align_planes(planes: Mapping[int, np.ndarray], *, seed: int = 0) -> AlignedPlanes:
    """min over rotations R of |X - s Y R|^2: each plane Y is turned to the one before it, X.

    planes  layer -> coordinates [N, 2] of the same N instances, 4 or more
    seed    of the shuffled points, and of those whose neighbours are looked at (5,000 at most)

    The axes of a projection mean nothing: two t-SNE planes of the same points differ by a turn at
    least. R is orthogonal, so that a plane may be reflected, and both are centred (orthogonal
    Procrustes, Schönemann 1966). Planes get the size (root mean square) of the first: the scale s
    that fits best would shrink a plane that does not fit.

    What is `kept` is 1 - min over R and s of |X - s Y R|^2 / |X|^2, from 0 to 1: the part of the
    points' variance in one plane that the next one, turned, predicts. `neighbours` is the share of
    the 10 nearest neighbours in one plane that are so in the next, too: clusters that stay whole,
    but move, keep it. Where both are small, a glide from one plane to the other tells nothing.

    `ProbeError` for no plane, for other shapes, for values that are not finite, and for a plane
    whose points are all the same.
    """
    check(len(planes) > 0, "there are no planes; expected at least one", ProbeError)
    given = {layer: np.asarray(planes[layer], dtype=np.float64) for layer in sorted(planes)}
    shapes = {y.shape for y in given.values()}
    check(len(shapes) == 1 and all(len(s) == 2 and s[1] == 2 and s[0] >= 4 for s in shapes),
          f"planes have shapes {', '.join(str(y.shape) for y in given.values())}; expected (N, 2) "
          "of the same N >= 4 instances", ProbeError)
    for layer, y in given.items():
        check(bool(np.isfinite(y).all()) and _size(y) > 0.0, f"the plane of layer {layer} has "
              "points that are not finite, or are all the same", ProbeError)
    rng = np.random.default_rng(checked_seed(seed))
    layers = list(given)
    coordinates = {layers[0]: given[layers[0]]}
    n = len(given[layers[0]])
    rows, asked = sampled(n, seed)
    dealt, mixed = rng.permutation(n), rng.permutation(len(asked))
    near = {layer: nearest(y[rows], min(K, (len(rows) - 1) // 2), queries=asked)
            for layer, y in given.items()}
    steps = []
    for before, layer in pairwise(layers):
        x, y = coordinates[before], given[layer]
        turned = replace(fit_rotation(x, y), scale=_size(x) / _size(y))
        coordinates[layer] = turned.apply(y)
        steps.append({
            "before": before, "layer": layer, "kept": _kept(x, y),
            "kept_shuffled": _kept(x, y[dealt]),
            "neighbours": float(shared_neighbours(near[before], near[layer]).mean()),
            "neighbours_shuffled": float(
                shared_neighbours(near[before], near[layer][mixed]).mean())})
    return AlignedPlanes(coordinates, pd.DataFrame(steps, columns=[
        "before", "layer", "kept", "kept_shuffled", "neighbours", "neighbours_shuffled"]))


def _size(y: np.ndarray) -> float:
    return float(np.sqrt(np.square(y - y.mean(axis=0)).sum()))


def _kept(x: np.ndarray, y: np.ndarray) -> float:
    """Return 1 - |X - s Y R|^2 / |X|^2 for the R and s that fit best, X and Y centred."""
    left = x - fit_rotation(x, y).apply(y)
    return float(1.0 - np.square(left).sum() / _size(x) ** 2)


__all__ = ["AlignedPlanes", "align_planes"]
