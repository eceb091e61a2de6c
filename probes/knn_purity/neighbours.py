"""Which points are nearest to a point, and do they have its class?"""

from __future__ import annotations

import numpy as np

from latentcode.errors import ProbeError, check, check_choice
from latentcode.probes.common.shuffling import shuffled_classes

MOST_NEIGHBORS = 15
"""Neighbours that the trustworthiness of a plane and the agreement of its labels look at."""
SHUFFLES = 20
"""Times that labels are shuffled to see how far neighbours agree on them by chance."""
BLOCK = 2**20
"""Distances that are held at a time."""


def nearest(
    points: np.ndarray, k: int, *, queries: np.ndarray | None = None,
    apart: np.ndarray | None = None, metric: str = "euclidean",
) -> np.ndarray:
    """argmin_j |x_i - x_j|, the k nearest points of each query, itself left out: int [Q, k].

    points   [N, d]
    queries  int [Q], rows of the points; default: all
    apart    int [N]: only points of another number than the query's count as neighbours
    metric   `euclidean` or `cosine`

    The k neighbours of a query are in no order. `ProbeError` where a query has fewer than k points
    to choose from, `UnknownNameError` for another metric.
    """
    check_choice("metric", metric, ("euclidean", "cosine"))
    x = np.asarray(points, dtype=np.float64)
    queries = np.arange(len(x)) if queries is None else np.asarray(queries)
    own = np.ones(1) if apart is None else np.bincount(np.unique(apart, return_inverse=True)[1])
    least = len(x) - int(own.max(initial=1))
    check(1 <= k <= least, f"k is {k} for {len(x)} points; expected 1 to {least}, as many "
          "neighbours as every query has", ProbeError)
    if metric == "cosine":
        length = np.linalg.norm(x, axis=1, keepdims=True)
        x = x / np.where(length > 0, length, 1.0)
        offset = np.zeros(len(x))
    else:
        x = x - x.mean(axis=0)  # large means would leave no digits for the differences
        offset = np.square(x).sum(axis=1)
    found = np.empty((len(queries), k), dtype=np.int64)
    rows = max(BLOCK // len(x), 1)
    for begin in range(0, len(queries), rows):
        asked = queries[begin:begin + rows]
        # The squared distance, less what all points have in common for one query.
        distance = offset - 2.0 * (x[asked] @ x.T)
        distance[np.arange(len(asked)), asked] = np.inf
        if apart is not None:
            distance[apart[asked][:, None] == apart] = np.inf
        found[begin:begin + rows] = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return found


def agreeing_neighbors(
    points: np.ndarray, kind: np.ndarray, groups: np.ndarray, metric: str,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Which of a point's nearest neighbours have its class, and its class when labels are shuffled?

    points  [N, d]
    kind    int [N], the class of each point
    groups  int [N], the combination of each point

    Returns bool [N, k] for k = 15 neighbours, fewer where there are fewer than 31 points, and bool
    [SHUFFLES, N, k], [0, N, k] where labels have no null. `ProbeError` for fewer than 4 points.
    """
    check(len(points) >= 4, f"there are {len(points)} points; expected at least 4", ProbeError)
    neighbors = nearest(points, min(MOST_NEIGHBORS, (len(points) - 1) // 2), metric=metric)
    shuffles = shuffled_classes(kind, groups, rng, SHUFFLES)
    return kind[neighbors] == kind[:, None], shuffles[:, neighbors] == shuffles[..., None]
