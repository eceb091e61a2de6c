"""Are planes turned to each other, at equal size, and is it told how much of a picture is kept?"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import procrustes

from latentcode.errors import ProbeError
from latentcode.probes.projection.alignment import align_planes


@pytest.fixture
def plane() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(80, 2)) * [4.0, 1.0] + [30.0, -5.0]


def turned(points: np.ndarray, angle: float, *, reflect: bool = False) -> np.ndarray:
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (points * [1.0, -1.0 if reflect else 1.0]) @ turn


def test_a_plane_that_was_turned_reflected_moved_and_scaled_comes_back(plane: np.ndarray) -> None:
    found = align_planes({3: 0.01 * turned(plane, 1.0) - 7.0, 1: plane,
                          2: 50.0 * turned(plane, 2.0, reflect=True) + 9.0})
    assert list(found.coordinates) == [1, 2, 3]
    for coordinates in found.coordinates.values():
        np.testing.assert_allclose(coordinates, plane, atol=1e-9)
    assert found.steps[["before", "layer"]].to_numpy().tolist() == [[1, 2], [2, 3]]
    np.testing.assert_allclose(found.steps[["kept", "neighbours"]], 1.0)
    assert found.steps["kept_shuffled"].max() < 0.1
    # A neighbour of another point is one's own by chance: 10 of the other 79.
    assert found.steps["neighbours_shuffled"].max() < 0.2


def test_what_is_kept_is_what_scipy_leaves(plane: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    other = turned(plane, 0.7) + rng.normal(size=(80, 2)) * 2.0
    step = align_planes({0: plane, 4: other}).step(4, 0)
    assert step is not None
    assert step["kept"] == pytest.approx(1.0 - procrustes(plane, other)[2])
    assert 0.2 < step["kept"] < 0.9
    assert step["kept"] == align_planes({0: plane, 4: other}).step(0, 4)["kept"]  # type: ignore[index]
    assert align_planes({0: plane, 4: other}).step(0, 3) is None


def test_a_plane_that_does_not_fit_keeps_its_size(plane: np.ndarray) -> None:
    unrelated = np.random.default_rng(2).permutation(plane) * 3.0
    found = align_planes({0: plane, 1: unrelated})
    assert found.steps["kept"].iloc[0] < 0.1
    assert np.ptp(found.coordinates[1]) == pytest.approx(np.ptp(plane), rel=0.5)
    spread = [np.square(y - y.mean(axis=0)).sum() for y in found.coordinates.values()]
    assert spread[0] == pytest.approx(spread[1])


def test_clusters_that_move_keep_their_neighbours() -> None:
    rng = np.random.default_rng(3)
    kind = np.repeat(np.arange(8), 12)
    inside = rng.normal(size=(96, 2))
    here, there = (np.stack([order % 3, order // 3], axis=1)[kind] * 100.0 for order in (
        np.arange(8), np.array([5, 2, 7, 0, 3, 6, 1, 4])))
    step = align_planes({0: here + inside, 1: there + inside}).step(0, 1)
    assert step is not None
    assert step["neighbours"] == 1.0
    assert step["kept"] < 0.5
    assert step["neighbours_shuffled"] < 0.3


def test_one_plane_has_no_steps_and_others_are_refused(plane: np.ndarray) -> None:
    assert len(align_planes({2: plane}).steps) == 0
    with pytest.raises(ProbeError, match="there are no planes"):
        align_planes({})
    with pytest.raises(ProbeError, match=r"shapes \(80, 2\), \(79, 2\); expected \(N, 2\)"):
        align_planes({0: plane, 1: plane[1:]})
    with pytest.raises(ProbeError, match=r"plane of layer 1 has points that .* are all the same"):
        align_planes({0: plane, 1: np.ones_like(plane)})
