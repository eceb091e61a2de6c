"""Are the nearest points found, those of other groups too, and are they scikit-learn's?"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from latentcode.probes.knn_purity import neighbours
from latentcode.probes.knn_purity.neighbours import nearest


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_nearest_are_those_of_scikit_learn(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "BLOCK", 500)  # several blocks, the last one smaller
    # Far from the origin, where squares of float32 would have no digits left.
    x = (1e4 + np.random.default_rng(0).normal(size=(90, 5)))
    expected = NearestNeighbors(n_neighbors=7, metric=metric).fit(x).kneighbors(
        return_distance=False)
    np.testing.assert_array_equal(np.sort(nearest(x, 7, metric=metric)), np.sort(expected))
    rows = np.array([5, 80, 3])
    np.testing.assert_array_equal(np.sort(nearest(x, 7, metric=metric, queries=rows)),
                                  np.sort(expected[rows]))


def test_neighbours_of_other_groups_are_the_nearest_of_them() -> None:
    rng = np.random.default_rng(1)
    x, groups = rng.normal(size=(60, 3)), rng.integers(0, 4, 60)
    found = nearest(x, 5, apart=groups)
    for i in range(60):
        others = np.flatnonzero(groups != groups[i])
        distance = np.linalg.norm(x[others] - x[i], axis=1)
        assert set(found[i]) == set(others[np.argsort(distance)[:5]])
