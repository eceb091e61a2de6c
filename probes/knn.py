"""What do the nearest training problems say of a held-out one? The k-nearest-neighbour probe."""

from __future__ import annotations

from typing import Literal

import numpy as np
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from latentcode.errors import ProbeError, check
from latentcode.probes.registered import Points, register_probe


@register_probe("knn", columns=("accuracy", "share"))
def knn(
    train: Points, heldout: Points, *, k: int = 10,
    metric: Literal["euclidean", "cosine"] = "euclidean",
) -> dict[str, np.ndarray]:
    """Which label do the nearest problems of other combinations have?

    The accuracy is how often the commonest label of the neighbours is right, the share how many of
    them have the right one. Nothing is assumed of the shape of classes, where `decode` draws planes
    between them and `knn_purity` also counts neighbours of the problem's own combination.

    Args:
        k: Neighbours, training problems.
        metric: `euclidean` or `cosine`: of points each of whose numbers has mean 0 and variance 1
            in training.
    """
    check(1 <= k <= len(train), f"k is {k} for {len(train)} training problems; expected 1 to "
          f"{len(train)}", ProbeError)
    scaler = StandardScaler().fit(train.x)
    search = NearestNeighbors(n_neighbors=k, metric=metric).fit(scaler.transform(train.x))
    near = search.kneighbors(scaler.transform(heldout.x), return_distance=False)
    votes = np.stack([(train.y[near] == c).sum(axis=1) for c in range(len(train.classes))], axis=1)
    return {"accuracy": votes.argmax(axis=1) == heldout.y,
            "share": votes[np.arange(len(heldout)), heldout.y] / k}


__all__ = ["knn"]
