"""Reach: how far the points of a plane tell their class.

    reach = (a - a0) / (1 - a0)

a is the balanced accuracy of a vote among a point's 15 nearest neighbours, a0 that of shuffled
labels: 0 where places tell nothing of the class, 1 where they tell it wholly. How it was chosen
among other measures is on `experiments/results/clumps`.
"""

from __future__ import annotations

import numpy as np

from latentcode.probes.common.features import shuffle_classes
from latentcode.probes.knn_purity.neighbours import MOST_NEIGHBORS, SHUFFLES, nearest


def votes(
    points: np.ndarray, kind: np.ndarray, groups: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return per point what it adds to the balanced accuracy of its neighbours' vote.

    points  [N, 2]
    kind    int [N], the class of each point
    groups  int [N]: labels are shuffled among the cells of equal group and class

    A class that shares the first place with others counts in part. Both are float64 [N], whose
    means are the balanced accuracy and that of labels that are shuffled (`SHUFFLES` times).
    """
    neighbours = nearest(points, min(MOST_NEIGHBORS, (len(points) - 1) // 2))
    dealt = shuffle_classes(kind, groups, rng, SHUFFLES)
    return (_voted(neighbours, kind),
            np.mean([_voted(neighbours, of_class) for of_class in dealt], axis=0))


def _voted(neighbours: np.ndarray, kind: np.ndarray) -> np.ndarray:
    sizes = np.bincount(kind)
    counts = np.zeros((len(kind), len(sizes)), dtype=np.int64)
    np.add.at(counts, (np.arange(len(kind))[:, None], kind[neighbours]), 1)
    first = counts == counts.max(axis=1, keepdims=True)
    right = first[np.arange(len(kind)), kind] / first.sum(axis=1)
    # Every class weighs the same, however common it is.
    return np.asarray(right * len(kind) / (np.count_nonzero(sizes) * sizes[kind]))


def reach(own: np.ndarray, shuffled: np.ndarray) -> np.ndarray:
    """Return (a - a0) / (1 - a0) as a mean over points, float64 [N], of what `votes` returns."""
    return np.asarray((own - shuffled) / (1.0 - shuffled.mean()))
