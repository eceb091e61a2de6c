"""Is a cached projection the computed one, bit for bit, and never a wrong or damaged one?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, ProbeError
from latentcode.files.cache import default_cache
from latentcode.probes.common.labels import combination_clusters
from latentcode.probes.projection import ProjectionResult, project_codes
from latentcode.probes.projection import cache as projection_cache
from latentcode.probes.projection.cache import CachedProjection
from latentcode.probes.projection.methods import fit_projection, label_quality, reduced_settings

FAST: dict[str, Any] = {"perplexity": 8.0, "n_iter": 30}


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 6))


def forbid_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("fitted, although everything is in the cache")
    monkeypatch.setattr(projection_cache, "fit_projection", fail)


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
    monkeypatch.setattr(projection_cache, "package_version", lambda name: "0.0")
    assert given._key(points) not in keys


@pytest.mark.parametrize("damage", ["coordinates", "json", "missing", "checksum"])
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
    elif damage == "missing":
        tensors.unlink()
    else:
        meta.write_text(meta.read_text().replace('"pca"', '"tsne"'))
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
    result = project_codes(heldout, ["term_1", "target"], method="pca", others=[train],
                           cache=tmp_path / "cache",
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
    result = project_codes(replace(codes, scores=scores), ["term_1"], method="pca",
                           pairs=["query->query"], cache=tmp_path)
    assert result.quality["layer"].tolist() == [1]
    assert "Layer 0, query->query: the codes of all instances are the same" in result.caveats[0]
    scores[:, 1] = 0.5
    with pytest.raises(ProbeError, match="all codes are the same at every layer and pair"):
        project_codes(replace(codes, scores=scores), ["term_1"], method="pca", cache=tmp_path)


def test_unusable_codes_and_labels_are_named(
    planted: Callable[..., LatentCodes], tmp_path: Path
) -> None:
    codes = planted("ood", instances=4)
    with pytest.raises(ProbeError, match="of splits ood, ood; expected different"):
        project_codes(codes, ["term_1"], others=[codes], cache=tmp_path)
    many = planted("ood", instances=20)
    many = replace(many, labels=many.labels.assign(which=[str(i) for i in range(len(many))]))
    with pytest.raises(ProbeError, match="categories cannot be told apart"):
        project_codes(many, ["which"], cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_neighbours_are_judged_in_the_plane_and_in_the_code(
    planted: Callable[..., LatentCodes], tmp_path: Path
) -> None:
    codes = planted("ood", instances=8)
    found = project_codes(codes, ["term_1"], method="pca", layers=[1], pairs=["query->query"],
                          cache=tmp_path, seed=3).labels.set_index("space")
    points, names = codes.select(layer=1, pair="query->query"), codes.labels["term_1"].to_numpy()
    groups = combination_clusters(codes)
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
    result = project_codes(codes, ["target"], method="pca", others=[few], layers=[1],
                           pairs=["query->query"], cache=tmp_path / "cache")
    folder = result.save(tmp_path / "result")
    assert "NaN" not in (folder / "projection.json").read_text()
    quality = ProjectionResult.load(folder).quality.set_index("split")["trustworthiness"]
    assert np.isnan(quality["train"])
    assert quality["ood"] > 0.5
