"""Is a cached projection the computed one, bit for bit, and never a wrong or damaged one?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from sklearn.manifold import trustworthiness

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, ProbeError
from latentcode.files.storage import default_cache
from latentcode.probes import projection
from latentcode.probes.common.labels import groups_of
from latentcode.probes.projection import (
    CachedProjection,
    ProjectionResult,
    fit_projection,
    label_quality,
    project,
    quality,
    reduced_settings,
)

FAST: dict[str, Any] = {"perplexity": 8.0, "n_iter": 30}


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 6))


def forbid_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("fitted, although everything is in the cache")
    monkeypatch.setattr(projection, "fit_projection", fail)


def test_what_is_cached_is_what_was_computed(
    points: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = fit_projection(points[:40], "tsne", seed=1, **FAST)
    expected = fresh.projection, fresh.transform(points[40:])
    for time in range(3):
        if time:
            forbid_fitting(monkeypatch)
        cached = CachedProjection(points[:40], "tsne", seed=1, cache=tmp_path / "new", **FAST)
        for found, wanted in zip((cached.projection, cached.transform(points[40:])), expected,
                                 strict=True):
            assert found.coordinates.tobytes() == wanted.coordinates.tobytes()
            assert (found.method, found.settings, found.quality) == (
                wanted.method, wanted.settings, wanted.quality)
    assert len(list((tmp_path / "new").iterdir())) == 4


def test_whatever_determines_the_coordinates_has_its_own_entry(
    points: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = points.copy()
    other[3, 2] = np.nextafter(other[3, 2], 9.0)
    keys = {CachedProjection(x, method, seed=seed, cache=tmp_path, **settings)._key(*arrays)
            for x, method, seed, settings, arrays in (
                (points, "pca", 0, {}, (points,)), (points, "pca", 1, {}, (points,)),
                (other, "pca", 0, {}, (other,)), (points, "tsne", 0, {}, (points,)),
                (points, "tsne", 0, {"perplexity": 5.0}, (points,)),
                (points, "pca", 0, {}, (points, other)), (points, "pca", 0, {}, (other, points)),
                (points, "pca", 0, {}, (points.T.copy(),)))}
    assert len(keys) == 8
    # A default that is given is the default.
    given = CachedProjection(
        points, "tsne", **reduced_settings("tsne", len(points)), cache=tmp_path)
    assert given._key(points) in keys
    monkeypatch.setattr(projection, "package_version", lambda name: "0.0")
    assert given._key(points) not in keys


@pytest.mark.parametrize("damage", ["coordinates", "json", "missing"])
def test_a_damaged_entry_is_computed_again_with_a_warning(
    points: np.ndarray, tmp_path: Path, damage: str
) -> None:
    expected = CachedProjection(points, "pca", cache=tmp_path).projection
    (tensors,), (meta,) = tmp_path.glob("*.safetensors"), tmp_path.glob("*.json")
    if damage == "coordinates":
        content = bytearray(tensors.read_bytes())
        content[-1] ^= 1
        tensors.write_bytes(content)
    elif damage == "json":
        meta.write_text("{")
    else:
        tensors.unlink()
    with pytest.warns(UserWarning, match="computed again"):
        found = CachedProjection(points, "pca", cache=tmp_path).projection
    assert found.coordinates.tobytes() == expected.coordinates.tobytes()
    # It was written anew: no warning, which would be an error here.
    assert CachedProjection(points, "pca", cache=tmp_path).projection.method == "pca"


def test_a_cache_that_cannot_be_written_loses_nothing(points: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="a projection is not kept"):
        found = CachedProjection(points, "pca", cache=tmp_path / "file").projection
    assert len(found) == 60


def test_the_folder_is_the_users_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "mine"))
    assert default_cache() == tmp_path / "mine"
    monkeypatch.delenv("LATENTCODE_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "latentcode"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert default_cache() == tmp_path / "local" / "latentcode"


def test_all_layers_and_pairs_of_two_splits(
    planted: Callable[..., LatentCodes], tmp_path: Path
) -> None:
    train, heldout = planted("train", instances=8), planted("ood", instances=8)
    seen: list[tuple[int, int]] = []
    result = project(heldout, train, ["term_1", "target"], method="pca", cache=tmp_path / "cache",
                     progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (400, 400)
    assert seen == sorted(seen)
    n = len(train) + len(heldout)
    assert len(result.coordinates) == 4 * n
    assert len(result.quality) == 8
    assert set(result.labels["label"]) == {"term_1"}  # a target is a measurement
    assert any("target" in note for note in result.caveats)
    part = result.coordinates[(result.coordinates["layer"] == 1)
                              & (result.coordinates["pair"] == "query->query")
                              & (result.coordinates["split"] == "train")]
    assert not part["fitted"].any()
    points = heldout.select(layer=1, pair="query->query")
    fitted = fit_projection(points, "pca")
    expected = fitted.transform(train.select(layer=1, pair="query->query")).coordinates
    np.testing.assert_array_equal(part[["projection_x", "projection_y"]].to_numpy(), expected)
    assert part["term_2"].tolist() == train.labels["term_2"].tolist()
    told = result.labels.set_index(["layer", "pair", "split", "space"])["knn_agreement"]
    assert told[1, "query->query", "ood", "code"] > told[0, "query->query", "ood", "code"] + 0.3
    folder = result.save(tmp_path / "result")
    assert (folder / "figure.png").stat().st_size > 10_000
    assert result.settings["quality"] == result.quality.to_dict("records")
    assert "trustworthiness" in repr(result)
    (folder / "coordinates.parquet").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"coordinates.parquet was damaged"):
        ProjectionResult.load(folder)


def test_codes_that_are_all_the_same_have_no_plane(
    planted: Callable[..., LatentCodes], tmp_path: Path
) -> None:
    codes = planted("ood", instances=4)
    scores = codes.scores.copy()
    scores[:, 0] = 0.25 + 1e-8 * scores[:, 0]
    result = project(replace(codes, scores=scores), labels=["term_1"], method="pca",
                     pairs=["query->query"], cache=tmp_path)
    assert result.quality["layer"].tolist() == [1]
    assert "Layer 0, query->query: the codes of all instances are the same" in result.caveats[0]
    scores[:, 1] = 0.5
    with pytest.raises(ProbeError, match="all codes are the same at every layer and pair"):
        project(replace(codes, scores=scores), labels=["term_1"], method="pca", cache=tmp_path)


def test_unusable_codes_and_labels_are_named(
    planted: Callable[..., LatentCodes], tmp_path: Path
) -> None:
    codes = planted("ood", instances=4)
    with pytest.raises(ProbeError, match="2 splits that are called ood; expected different"):
        project(codes, codes, ["term_1"], cache=tmp_path)
    many = planted("ood", instances=20)
    many = replace(many, labels=many.labels.assign(which=[str(i) for i in range(len(many))]))
    with pytest.raises(ProbeError, match="categories cannot be told apart"):
        project(many, labels=["which"], cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_neighbours_are_judged_in_the_plane_and_in_the_code(
    planted: Callable[..., LatentCodes], tmp_path: Path
) -> None:
    codes = planted("ood", instances=8)
    found = project(codes, labels=["term_1"], method="pca", layers=[1], pairs=["query->query"],
                    cache=tmp_path, seed=3).labels.set_index("space")
    points, names = codes.select(layer=1, pair="query->query"), codes.labels["term_1"].to_numpy()
    groups = groups_of(codes.labels)
    plane = fit_projection(points, "pca").projection.coordinates
    for space, place in (("code", points), ("plane", plane)):
        slow = label_quality(place, names, groups=groups, seed=3)
        alone = label_quality(place, names, seed=3)
        assert found.loc[space, list(slow)].to_dict() == pytest.approx(slow)
        assert abs(slow["knn_shuffled"] - alone["knn_shuffled"]) > 0.05
    assert abs(found.loc["code", "silhouette"] - found.loc["plane", "silhouette"]) > 0.01


def test_two_points_of_another_split_have_no_trustworthiness(
    planted: Callable[..., LatentCodes], tmp_path: Path
) -> None:
    codes, few = planted("ood", instances=8), planted("train").subset(np.arange(2))
    result = project(codes, few, ["target"], method="pca", layers=[1], pairs=["query->query"],
                     cache=tmp_path / "cache")
    folder = result.save(tmp_path / "result")
    assert "NaN" not in (folder / "projection.json").read_text()
    quality = ProjectionResult.load(folder).quality.set_index("split")["trustworthiness"]
    assert np.isnan(quality["train"])
    assert quality["ood"] > 0.5


# --- The methods ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = 5.0 * rng.normal(size=(3, 8))
    return np.asarray(centres[np.arange(120) % 3] + rng.normal(size=(120, 8)))


def test_clusters_stay_together(clusters: np.ndarray) -> None:
    found = fit_projection(clusters, perplexity=10.0, n_iter=250).projection
    y = found.coordinates
    cluster = np.arange(120) % 3
    centre = np.stack([y[cluster == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(y[:, None] - centre, axis=-1).argmin(axis=1)
    assert (nearest == cluster).all()
    assert found.quality["trustworthiness"] > 0.85


def test_quality_is_the_trustworthiness(
    clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = trustworthiness(clusters, clusters[:, :2], n_neighbors=15)
    assert quality(clusters, clusters[:, :2]) == {
        "trustworthiness": pytest.approx(wanted), "points": 120, "neighbors": 15}
    scrambled = np.random.default_rng(0).permutation(clusters)[:, :2]
    assert quality(clusters, scrambled)["trustworthiness"] < 0.6
    monkeypatch.setattr(projection, "QUALITY_POINTS", 50)
    few = quality(clusters, clusters[:, :2])
    assert few["points"] == 50
    assert few == quality(clusters, clusters[:, :2])


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


def test_new_points_are_placed_among_the_fitted_ones(clusters: np.ndarray) -> None:
    fitted = fit_projection(clusters[:90], "tsne", perplexity=10.0, n_iter=250, seed=2)
    before = fitted.projection.coordinates.copy()
    placed, again = (fitted.transform(clusters[90:]) for _ in range(2))
    other = fit_projection(clusters[:90], "tsne", perplexity=10.0, n_iter=250, seed=2)
    assert placed.coordinates.tobytes() == again.coordinates.tobytes()
    assert placed.coordinates.tobytes() == other.transform(clusters[90:]).coordinates.tobytes()
    assert fitted.projection.coordinates.tobytes() == before.tobytes()
    centre = np.stack([before[np.arange(90) % 3 == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(placed.coordinates[:, None] - centre, axis=-1).argmin(axis=1)
    assert (nearest == np.arange(90, 120) % 3).all()
    assert placed.settings == {**fitted.projection.settings, "fitted_on": 90}
    assert placed.quality["points"] == 30
    with pytest.raises(ProbeError, match=r"shape \(30, 7\); expected \(points, 8\)"):
        fitted.transform(clusters[90:, :7])


def test_pca_places_new_points_in_the_plane_of_the_fitted_ones(clusters: np.ndarray) -> None:
    fitted = fit_projection(clusters[:60], "pca")
    mean = clusters[:60].mean(axis=0)
    axes = np.linalg.svd(clusters[:60] - mean)[2][:2]
    expected = (clusters[60:] - mean) @ axes.T
    placed = fitted.transform(clusters[60:]).coordinates
    np.testing.assert_allclose(np.abs(placed), np.abs(expected), atol=1e-10)


def test_classes_apart_agree_with_their_neighbours_and_shuffled_ones_do_not(
    clusters: np.ndarray
) -> None:
    names = np.array(["a", "b", "c"])[np.arange(120) % 3]
    apart = label_quality(clusters, names)
    assert apart["knn_agreement"] > 0.98
    assert apart["silhouette"] > 0.3
    assert apart["classes"] == 3
    # A neighbour is any other point: 39 of 119 have the same class.
    assert apart["knn_shuffled"] == pytest.approx(39 / 119, abs=0.02)
    mixed = label_quality(clusters, np.random.default_rng(1).permutation(names))
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


def test_label_quality_says_what_it_cannot_judge(clusters: np.ndarray) -> None:
    one = label_quality(clusters, np.full(120, "a"))
    assert one["knn_agreement"] == 1.0
    assert np.isnan(one["silhouette"])


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_few_new_points_are_placed_without_a_quality(clusters: np.ndarray, method: str) -> None:
    settings = {"perplexity": 5.0, "n_iter": 20} if method == "tsne" else {}
    fitted = fit_projection(clusters, method, **settings)
    for n in (1, 2):
        placed = fitted.transform(clusters[:n])
        assert placed.coordinates.shape == (n, 2)
        assert placed.quality == {"points": n, "neighbors": 0}
    assert set(fitted.transform(clusters[:3]).quality) == {"trustworthiness", "points", "neighbors"}
    with pytest.raises(ProbeError, match=r"shape \(0, 8\)"):
        fitted.transform(clusters[:0])


# --- Runs -----------------------------------------------------------------------------------------


def test_a_run_is_projected_as_its_codes(runs: list[lc.Run], tmp_path: Path) -> None:
    run = runs[0]
    found = lc.project(run.path, method="pca", splits=("ood", "test"), n=60, layers=[1], seed=2,
                       cache=tmp_path / "run")
    task = lc.make_task(run.config.task).probe_config
    codes, others = (lc.extract(run, split=split, n=60, layers=[1], problems=task, seed=2)
                     for split in ("ood", "test"))
    wanted = project(codes, others, ["rule"], method="pca", seed=2, cache=tmp_path / "codes")
    assert found.settings["labels"] == ["rule"]
    assert_frame_equal(found.coordinates, wanted.coordinates)
    assert_frame_equal(found.labels, wanted.labels)


def test_of_many_codes_a_sample_is_projected_and_that_is_said(
    runs: list[lc.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projection, "MOST_POINTS", 20)
    train, heldout = (lc.extract(runs[0], split=split, n=n, layers=[1])
                      for split, n in (("train", 30), ("ood", 12)))
    found = project(train, heldout, ["rule"], method="pca", cache=tmp_path)
    points = found.coordinates.groupby("split")["instance"]
    assert points.nunique().to_dict() == {"train": 20, "ood": 12}
    assert points.get_group("train").isin(range(30)).all()
    assert points.get_group("train").max() > 20
    assert "train: a sample of 20 codes, drawn from 30." in found.caveats
    assert not any(note.startswith("ood:") for note in found.caveats)
