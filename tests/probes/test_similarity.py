"""Do cosines, orders and concentrations have their closed forms, and controls beside them?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes.common.labels import groups_of
from latentcode.probes.common.statistics import percentile_interval, resample
from latentcode.probes.similarity import (
    ALL,
    SimilarityResult,
    cluster_order,
    concentration,
    cosine_matrix,
    similarity,
)

Planted = Callable[..., LatentCodes]


@pytest.fixture(scope="module")
def result(planted: Planted) -> SimilarityResult:
    codes = lc.subject(planted("ood"), untrained=planted("ood", strength=0.0))
    return similarity(codes, label="term_1", n_bootstrap=200, n_samples=5)


@pytest.mark.parametrize(("code", "ratio", "sparsity", "one_hot"), [
    ([1.0, 0.0, 0.0, 0.0], 0.25, 1.0, 1.0), ([-3.0, 3.0, 3.0, -3.0], 1.0, 0.0, 0.0),
    ([1e-30, 1e-30, 0.0, 0.0], 0.5, (2 - np.sqrt(2)) / (2 - 1), 0.0),
    ([90.0, 5.0, 5.0, 0.0], 1e4 / (4 * 8150), (2 - 100 / np.sqrt(8150)) / 1, 1.0)])
def test_concentration_has_its_closed_form(
    code: list[float], ratio: float, sparsity: float, one_hot: float
) -> None:
    found = concentration(np.array([code]))
    assert found["participation_ratio"][0] == pytest.approx(ratio)
    assert found["sparsity"][0] == pytest.approx(sparsity, abs=1e-12)
    assert found["one_hot"][0] == one_hot
    assert found["largest_share"][0] == pytest.approx(max(np.abs(code)) / np.abs(code).sum())


def test_gaussian_codes_have_the_stated_participation_ratio() -> None:
    x = np.random.default_rng(0).normal(size=(200, 4_000))
    assert concentration(x)["participation_ratio"].mean() == pytest.approx(2 / np.pi, abs=0.005)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(1, 6), st.integers(0, 1000), st.floats(0.01, 100.0))
def test_concentration_knows_neither_scale_sign_nor_order(
    n_heads: int, seed: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, n_heads))
    same = x[:, rng.permutation(n_heads)] * scale * rng.choice([-1, 1], n_heads)
    for name, values in concentration(x).items():
        np.testing.assert_allclose(concentration(same)[name], values, atol=1e-9)
        assert (values >= -1e-12).all()
        assert (values <= 1 + 1e-12).all()


def test_cosines_of_known_means() -> None:
    means = np.array([[1.0, 1.0], [1.0, -1.0], [3.0, 3.0]])
    np.testing.assert_allclose(cosine_matrix(means), [[1, 0, 1], [0, 1, 0], [1, 0, 1]], atol=1e-12)
    centred = cosine_matrix(means, "centred")
    away = means - means.mean(axis=0)
    assert centred[0, 1] == pytest.approx(
        away[0] @ away[1] / np.linalg.norm(away[0]) / np.linalg.norm(away[1]))
    orthogonal = cosine_matrix(np.eye(5), "centred")
    np.testing.assert_allclose(orthogonal[~np.eye(5, dtype=bool)], -1 / 4, atol=1e-12)


def test_means_that_differ_by_rounding_have_no_centred_cosine() -> None:
    means = np.ones((3, 4)) + 1e-8 * np.random.default_rng(0).normal(size=(3, 4))
    assert np.isnan(cosine_matrix(means, "centred")).all()
    np.testing.assert_allclose(cosine_matrix(means), 1.0)


def test_every_class_counts_the_same_in_the_centre(planted: Planted) -> None:
    codes = planted("ood")
    often = np.flatnonzero(codes.labels["term_1"] == "t0")
    more = codes.subset(np.concatenate([np.arange(len(codes)), np.repeat(often, 4)]))
    before, after = (similarity(c, label="term_1", controls=False, n_bootstrap=100).matrix(
        layer=1, pair="query->query") for c in (codes, more))
    assert more.labels["term_1"].value_counts()["t0"] == 5 * len(often) > 0
    np.testing.assert_allclose(after.loc[before.index, before.index], before, atol=1e-6)


def test_similar_classes_stand_together() -> None:
    angles = np.array([0.0, 2.0, 0.1, 2.1, 0.05])
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    order = angles[cluster_order(cosine_matrix(points))]
    assert sorted(order[:2]) == [2.0, 2.1] or sorted(order[-2:]) == [2.0, 2.1]


def test_planted_means_are_found_beside_their_controls(
    planted: Planted, result: SimilarityResult
) -> None:
    codes = planted("ood")
    slow = codes.mean_by("term_1", layer=1, pair="query->query").to_numpy(np.float64)
    mine = result.means[(result.means["features"] == "code") & (result.means["layer"] == 1)
                        & (result.means["pair"] == "query->query")]
    np.testing.assert_allclose(
        mine.pivot(index="class", columns="component", values="value"), slow, atol=1e-6)
    matrix = result.matrix(layer=1, pair="query->query", centring="raw")
    slow_cosine = cosine_matrix(slow)
    names = sorted(matrix.index)
    np.testing.assert_allclose(matrix.loc[names, names], slow_cosine, atol=1e-6)
    assert set(result.cosines["features"]) == {"code", "residual", "untrained", "shuffled"}
    assert set(result.concentration["features"]) == {"code", "residual", "untrained"}
    shuffled = result.cosines.query("features == 'shuffled' and layer == 1 and centring == 'raw' "
                                    "and pair == 'query->query' and row != column")
    code = result.cosines.query("features == 'code' and layer == 1 and centring == 'raw' "
                                "and pair == 'query->query' and row != column")
    assert not np.allclose(shuffled["value"], code["value"])
    assert ((code["low"] <= code["value"]) & (code["value"] <= code["high"])).mean() > 0.9


def test_the_share_of_one_head(planted: Planted) -> None:
    codes = planted("ood", residuals=False)
    scores = np.full_like(codes.scores, 0.001)
    scores[:, :, :, 2] = 1.0
    scores[:30, :, :, 2], scores[:30, :, :, 5] = 0.001, -1.0
    found = similarity(replace(codes, scores=scores), label="term_1", controls=False,
                       n_bootstrap=100).concentration
    whole = found[(found["class"] == ALL) & (found["layer"] == 0)].set_index(["pair", "measure"])
    values = whole.loc["query->query", "value"]
    assert values["one_hot"] == 1.0
    assert values["same_head"] == pytest.approx(1 - 30 / len(codes))
    assert values["participation_ratio"] == pytest.approx(1 / 12, abs=0.01)


def test_results_are_drawn(result: SimilarityResult, tmp_path: Path) -> None:
    names = {path.name for path in result.save(tmp_path / "similarity").iterdir()}
    assert {"figure.png", "points_code.png", "points_residual.png", "points_untrained.png",
            "concentration.png"} <= names
    assert "closest classes" in repr(result)


def test_intervals_are_those_of_a_slow_bootstrap(planted: Planted) -> None:
    codes = planted("ood", instances=5)
    found = similarity(codes, label="term_1", controls=False, n_bootstrap=100, layers=[1],
                       pairs=["query->query"])
    x = codes.select(layer=1, pair="query->query").astype(float)
    cluster, names = groups_of(codes.labels), codes.labels["term_1"].to_numpy()
    classes, n = np.unique(names), int(cluster.max()) + 1
    drawn = resample(n, 100, np.random.default_rng(np.random.SeedSequence(0).spawn(3)[2]))
    cosines, largest = np.full((2, 100, len(classes), len(classes)), np.nan)
    for r, weights in enumerate(drawn):
        rows = np.concatenate([np.tile(np.flatnonzero(cluster == c), int(w))
                               for c, w in enumerate(weights)]).astype(int)
        present = np.isin(classes, names[rows])
        means = np.array([x[rows[names[rows] == c]].mean(axis=0) for c in classes[present]])
        cosines[r][np.ix_(present, present)] = cosine_matrix(means)
        size = np.abs(x[rows])
        largest[r, 0, 0] = (size.max(axis=1) / size.sum(axis=1)).mean()
    low, high = percentile_interval(cosines, n)
    raw = found.cosines.query("features == 'code' and centring == 'raw'")
    np.testing.assert_allclose(raw["low"], low.ravel(), atol=1e-9)
    np.testing.assert_allclose(raw["high"], high.ravel(), atol=1e-9)
    low, high = percentile_interval(largest[:, 0, 0], n)
    row = found.concentration[(found.concentration["class"] == ALL)
                              & (found.concentration["measure"] == "largest_share")].iloc[0]
    assert [row["low"], row["high"]] == pytest.approx([float(low), float(high)])
    assert high - low > 1e-3


def test_shuffled_labels_stay_together_in_a_combination(planted: Planted) -> None:
    """Combinations that point in directions of their own still do when they swap names."""
    codes = planted("ood", residuals=False)
    scores = np.zeros_like(codes.scores)
    cluster = groups_of(codes.labels)
    scores[np.arange(len(codes)), :, :, cluster] = 1.0
    labels = codes.labels.assign(name=codes.labels["combination"])
    found = similarity(replace(codes, scores=scores, labels=labels), label="name", controls=False,
                       n_bootstrap=100).cosines
    apart = found.query("features == 'shuffled' and centring == 'raw' and row != column")
    assert len(apart) == 4 * 30
    np.testing.assert_allclose(apart["value"], 0.0, atol=1e-12)


def test_a_control_that_is_zero_has_no_measures(planted: Planted) -> None:
    codes, untrained = planted("ood"), planted("ood", strength=0.0)
    scores = untrained.scores.copy()
    scores[:, 0] = 0.0
    scores[:7, 1] = 0.0
    found = similarity(lc.subject(codes, untrained=replace(untrained, scores=scores)),
                       label="term_1", n_bootstrap=100, pairs=["query->query"])
    whole = found.concentration[(found.concentration["class"] == ALL)
                                & (found.concentration["features"] == "untrained")]
    assert whole.loc[whole["layer"] == 0, ["value", "low", "high"]].isna().all(axis=None)
    some = whole[whole["layer"] == 1].set_index("measure")
    assert set(some["n"]) == {len(codes) - 7}
    slow = concentration(scores[7:, 1, 0].astype(float))["participation_ratio"].mean()
    assert some.loc["participation_ratio", "value"] == pytest.approx(slow)
    assert found.cosines.query("features == 'untrained' and layer == 0")["value"].isna().all()
    for layer, n in ((0, 120), (1, 7)):
        assert any(f"untrained of layer {layer}, query->query is zero in {n} of 120" in note
                   for note in found.caveats)
    assert found.figure().axes
    zero = replace(codes, scores=codes.scores * (np.arange(len(codes)) > 2)[:, None, None, None])
    with pytest.raises(ProbeError, match="code of layer 0, pair 'query->query': 3 of 120 codes"):
        similarity(zero, label="term_1", controls=False, n_bootstrap=100)
