"""Is t-SNE reproducible, judged, and honest about what it cannot do?"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.manifold import trustworthiness

from latentcode.errors import ProbeError
from latentcode.probes.projection import methods as projection
from latentcode.probes.projection.methods import (
    fit_projection,
    label_quality,
    quality,
)


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = 5.0 * rng.normal(size=(3, 8))
    return np.asarray(centres[np.arange(120) % 3] + rng.normal(size=(120, 8)))


def test_clusters_stay_together(points: np.ndarray) -> None:
    found = fit_projection(points, perplexity=10.0, n_iter=250).projection
    y = found.coordinates
    cluster = np.arange(120) % 3
    centre = np.stack([y[cluster == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(y[:, None] - centre, axis=-1).argmin(axis=1)
    assert (nearest == cluster).all()
    assert found.quality["trustworthiness"] > 0.85


def test_quality_is_the_trustworthiness(
    points: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert quality(points, points[:, :2]) == {
        "trustworthiness": pytest.approx(trustworthiness(points, points[:, :2], n_neighbors=15)),
        "points": 120, "neighbors": 15}
    scrambled = np.random.default_rng(0).permutation(points)[:, :2]
    assert quality(points, scrambled)["trustworthiness"] < 0.6
    monkeypatch.setattr(projection, "QUALITY_POINTS", 50)
    few = quality(points, points[:, :2])
    assert few["points"] == 50
    assert few == quality(points, points[:, :2])


def test_pca_is_the_plane_of_largest_variance() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)) * [5.0, 3.0, 0.1, 0.1, 0.1] @ np.linalg.qr(
        rng.normal(size=(5, 5)))[0]
    result = fit_projection(x, "pca").projection
    eigenvalues = np.sort(np.linalg.eigvalsh(np.cov(x.T)))[::-1]
    np.testing.assert_allclose(result.coordinates.var(axis=0, ddof=1), eigenvalues[:2])
    np.testing.assert_allclose(
        result.settings["explained_variance_ratio"], eigenvalues[:2] / eigenvalues.sum())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:n_jobs value:UserWarning")
def test_umap_keeps_clusters_apart_and_is_reproducible() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=150)
    x = rng.normal(size=(150, 8)) + 20.0 * np.eye(8)[y]
    first, second = (fit_projection(x, "umap", seed=1).projection for _ in range(2))
    np.testing.assert_array_equal(first.coordinates, second.coordinates)
    centres = np.stack([first.coordinates[y == c].mean(axis=0) for c in range(3)])
    spread = max(np.linalg.norm(first.coordinates[y == c] - centres[c], axis=1).mean()
                 for c in range(3))
    assert min(np.linalg.norm(centres[a] - centres[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > (
        2 * spread)
    with pytest.raises(ProbeError, match="n_neighbors is 15 for 10 points"):
        fit_projection(x[:10], "umap", n_neighbors=15)
    fitted = fit_projection(x, "umap", seed=1)
    placed = fitted.transform(x[:30] + 0.01)
    assert placed.coordinates.tobytes() == fitted.transform(x[:30] + 0.01).coordinates.tobytes()
    nearest = np.linalg.norm(placed.coordinates[:, None] - centres, axis=-1).argmin(axis=1)
    assert (nearest == y[:30]).all()


def test_new_points_are_placed_among_the_fitted_ones(points: np.ndarray) -> None:
    fitted = fit_projection(points[:90], "tsne", perplexity=10.0, n_iter=250, seed=2)
    before = fitted.projection.coordinates.copy()
    placed, again = (fitted.transform(points[90:]) for _ in range(2))
    other = fit_projection(points[:90], "tsne", perplexity=10.0, n_iter=250, seed=2)
    assert placed.coordinates.tobytes() == again.coordinates.tobytes()
    assert placed.coordinates.tobytes() == other.transform(points[90:]).coordinates.tobytes()
    assert fitted.projection.coordinates.tobytes() == before.tobytes()
    centre = np.stack([before[np.arange(90) % 3 == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(placed.coordinates[:, None] - centre, axis=-1).argmin(axis=1)
    assert (nearest == np.arange(90, 120) % 3).all()
    assert placed.settings == {**fitted.projection.settings, "fitted_on": 90}
    assert placed.quality["points"] == 30
    with pytest.raises(ProbeError, match=r"shape \(30, 7\); expected \(points, 8\)"):
        fitted.transform(points[90:, :7])


def test_pca_places_new_points_in_the_plane_of_the_fitted_ones(points: np.ndarray) -> None:
    fitted = fit_projection(points[:60], "pca")
    mean = points[:60].mean(axis=0)
    axes = np.linalg.svd(points[:60] - mean)[2][:2]
    expected = (points[60:] - mean) @ axes.T
    placed = fitted.transform(points[60:]).coordinates
    np.testing.assert_allclose(np.abs(placed), np.abs(expected), atol=1e-10)


def test_classes_apart_agree_with_their_neighbours_and_shuffled_ones_do_not(
    points: np.ndarray
) -> None:
    names = np.array(["a", "b", "c"])[np.arange(120) % 3]
    apart = label_quality(points, names)
    assert apart["knn_agreement"] > 0.98
    assert apart["silhouette"] > 0.3
    assert apart["classes"] == 3
    # A neighbour is any other point: 39 of 119 have the same class.
    assert apart["knn_shuffled"] == pytest.approx(39 / 119, abs=0.02)
    mixed = label_quality(points, np.random.default_rng(1).permutation(names))
    assert mixed["knn_agreement"] == pytest.approx(39 / 119, abs=0.06)
    assert mixed["silhouette"] < 0.05


def test_labels_are_shuffled_among_combinations() -> None:
    # Ten combinations far apart, whose points share a class: neighbours agree whatever the class.
    groups = np.repeat(np.arange(10), 20)
    x = 100.0 * np.eye(10)[groups] + np.random.default_rng(0).normal(size=(200, 10))
    of_instance = label_quality(x, groups % 2)
    of_combination = label_quality(x, groups % 2, groups=groups)
    assert of_instance["knn_agreement"] == of_combination["knn_agreement"] == 1.0
    assert of_combination["knn_shuffled"] == 1.0
    assert of_instance["knn_shuffled"] < 0.6


def test_label_quality_says_what_it_cannot_judge(points: np.ndarray) -> None:
    with pytest.raises(ProbeError, match="measurements"):
        label_quality(points, np.linspace(0.0, 1.0, 120))
    one = label_quality(points, np.full(120, "a"))
    assert one["knn_agreement"] == 1.0
    assert np.isnan(one["silhouette"])


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_few_new_points_are_placed_without_a_quality(points: np.ndarray, method: str) -> None:
    settings = {"perplexity": 5.0, "n_iter": 20} if method == "tsne" else {}
    fitted = fit_projection(points, method, **settings)
    for n in (1, 2):
        placed = fitted.transform(points[:n])
        assert placed.coordinates.shape == (n, 2)
        assert placed.quality == {"points": n, "neighbors": 0}
    assert set(fitted.transform(points[:3]).quality) == {"trustworthiness", "points", "neighbors"}
    with pytest.raises(ProbeError, match="no points to place"):
        fitted.transform(points[:0])
