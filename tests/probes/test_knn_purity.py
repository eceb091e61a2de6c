"""Has the purity of neighbours its closed forms, and is what it could be fooled by counted out?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import NearestNeighbors

import latentcode as lc
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError
from latentcode.probes import knn_purity as module
from latentcode.probes.common.results import where
from latentcode.probes.knn_purity import (
    ALL,
    OTHER,
    KNNPurityResult,
    judged_labels,
    knn_purity,
    label_classes,
    nearest,
    purity,
    separates,
)

Planted = Callable[..., LatentCodes]
PAIR = "query->query"


def clusters(kind: np.ndarray, *, noise: float = 0.1, seed: int = 0) -> np.ndarray:
    """Return points of one far cluster per kind."""
    rng = np.random.default_rng(seed)
    return 100.0 * np.eye(int(kind.max()) + 1)[kind] + noise * rng.normal(
        size=(len(kind), int(kind.max()) + 1))


def row(table: pd.DataFrame, label: str, among: str = ALL) -> pd.Series:
    found = table[(table["label"] == label) & (table["among"] == among)]
    assert len(found) == 1
    return found.iloc[0]


def test_clusters_are_pure_and_what_they_do_not_know_is_at_chance() -> None:
    rng = np.random.default_rng(0)
    kind = np.repeat(np.arange(3), [200, 80, 20])  # a frequent value, which counts no more
    other = rng.integers(0, 4, 300)
    found = purity(clusters(kind), {"kind": kind, "other": other}, shuffles=20)
    assert list(found["among"]) == [ALL, ALL]
    assert row(found, "kind")["purity"] == 1.0
    # A shuffled label agrees with (n_v - 1) / (N - 1) of the neighbours of value v.
    chance = (300 - 3) / (3 * 299)
    assert row(found, "kind")["shuffled"] == pytest.approx(chance, abs=0.01)
    assert row(found, "kind")["excess"] == pytest.approx(1.0 - chance, abs=0.01)
    assert 0.0 < row(found, "kind")["spread"] < 0.05
    assert abs(row(found, "other")["excess"]) < 0.05
    assert row(found, "other")["values"] == 4


def test_purity_is_the_mean_over_values() -> None:
    # Value 0 is alone in its cluster, values 1 and 2 share one in equal numbers.
    kind = np.repeat([0, 1, 2], [300, 60, 60])
    found = row(purity(clusters(np.minimum(kind, 1)), {"kind": kind}), "kind")
    assert found["purity"] == pytest.approx((1.0 + 59 / 119 + 59 / 119) / 3, abs=0.03)


def test_what_only_names_the_combination_has_no_excess() -> None:
    # A cluster for each of twelve combinations; two rules, which combinations have by chance.
    combination = np.repeat(np.arange(12), 30)
    rule = np.array([0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0])[combination]
    found = purity(clusters(combination), {"rule": rule, "combination": combination},
                   combinations=combination)
    assert row(found, "rule")["purity"] == 1.0
    assert row(found, "rule")["excess"] == 0.0
    assert row(found, "combination")["excess"] == 0.0
    assert row(found, "rule", OTHER)["purity"] < 0.75
    assert np.isnan(row(found, "combination", OTHER)["purity"])


def test_a_rule_that_combinations_share_is_found_among_the_others() -> None:
    # Points lie by their rule; within it a little by their combination.
    rng = np.random.default_rng(2)
    combination = np.repeat(np.arange(12), 30)
    rule = combination % 3
    x = clusters(rule) + 5.0 * rng.normal(size=(12, 3))[combination]
    found = purity(x, {"rule": rule}, combinations=combination)
    assert row(found, "rule", OTHER)["purity"] == 1.0
    assert row(found, "rule", OTHER)["excess"] > 0.4
    assert row(found, "rule")["excess"] < 0.05  # its nearest neighbours share the combination


def test_measurements_are_cut_at_their_median() -> None:
    values = np.random.default_rng(3).normal(size=101)
    cut = label_classes("loss", values)
    above = values > np.median(values)
    assert len(np.unique(cut)) == 2
    assert {tuple(above[cut == c]) == (True,) * int((cut == c).sum()) for c in (0, 1)} == {
        True, False}
    mostly_one = np.array([0.2, 0.5] + [1.0] * 8)
    assert [len(set(label_classes("r2", mostly_one)[part].tolist())) for part in (
        slice(0, 2), slice(2, None))] == [1, 1]
    assert len(np.unique(label_classes("accuracy", np.array([0.0, 1.0, 1.0, 1.0])))) == 2


def test_a_seed_gives_the_same_and_large_sets_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = np.random.default_rng(4).integers(0, 3, 400)
    x = clusters(kind, noise=60.0)
    first, again, other = (purity(x, {"kind": kind}, seed=seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    assert row(first, "kind")["shuffled"] != row(other, "kind")["shuffled"]
    monkeypatch.setattr(module, "MOST_POINTS", 300)
    monkeypatch.setattr(module, "MOST_QUERIES", 100)
    sampled = row(purity(x, {"kind": kind}), "kind")
    assert sampled["points"] == 100
    assert sampled["purity"] == pytest.approx(row(first, "kind")["purity"], abs=0.1)


def test_the_labels_of_codes(planted: Callable[..., LatentCodes]) -> None:
    # Neighbours cannot agree on what every instance has a value of its own of.
    codes = planted("ood").with_labels(rule=np.arange(120) % 3, text=[f"{i}" for i in range(120)])
    assert list(judged_labels(codes.labels, codes.pair("query->query"))) == [
        "term", "term_2", "combination", "target", "rule"]


def test_a_value_that_nobody_was_asked_about_makes_no_label_separate() -> None:
    n = 30_000
    rng = np.random.default_rng(0)
    rare = np.zeros(n)
    rare[:2] = 1.0
    table = purity(rng.normal(size=(n, 3)), {"accuracy": rare, "rule": rng.integers(0, 4, n)},
                   seed=1).set_index("label")
    assert np.isnan(table.loc["accuracy", "purity"])
    assert not separates(table).any()
    assert table.loc["rule", "purity"] == pytest.approx(0.25, abs=0.02)


@pytest.fixture(scope="module")
def result(planted: Planted) -> KNNPurityResult:
    return knn_purity(lc.subject(planted("ood"), untrained=planted("ood", strength=0.0)),
                      pairs=PAIR, n_bootstrap=200)


def test_the_numbers_are_those_of_the_arrays(result: KNNPurityResult, planted: Planted) -> None:
    codes = planted("ood")
    wanted = purity(codes.select(layer=1, pair=PAIR), {"target": codes.labels["target"]},
                    combinations=codes.labels["combination"].to_numpy()).set_index("among")
    found = where(result.table, layer=1, label="target", features="code").set_index("among")
    for mine, theirs in (("value", "purity"), ("values", "values")):
        pd.testing.assert_series_equal(found[mine], wanted[theirs], check_names=False)
    assert set(result.table["features"]) == {"code", "residual", "untrained"}
    assert result.settings["cut"] == ["target"]


def test_a_balanced_mean_has_an_interval_about_it(result: KNNPurityResult) -> None:
    known = result.table[np.isfinite(result.table["low"])]
    assert (known["low"] <= known["high"]).all()
    noise = where(known, layer=0, features="code", among=ALL, label="target")
    assert noise["low"].item() < 0.5 < noise["high"].item() + 0.1


def test_it_is_shown(result: KNNPurityResult, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "knn_purity")
    assert (folder / "figure.png").stat().st_size > 1_000
    text = repr(result)
    assert "median, above it or not: target." in text
    assert "Without controls" not in text
    assert len(result.summary()) == 2 * 4  # four labels, two layers


def test_what_is_the_same_in_all_instances_separates_nothing(planted: Planted) -> None:
    codes = planted("ood")
    scores = codes.scores.copy()
    scores[:, 0] = 1.0
    same = LatentCodes(scores, codes.labels, codes.pairs, codes.layers, codes.meta)
    found = knn_purity(same, labels="term_1", controls=False, pairs=PAIR, n_bootstrap=100)
    assert set(found.table["layer"]) == {1}
    _, note = found.caveats
    assert note.startswith("The code of layer 0, query->query is the same")
    with pytest.raises(ProbeError, match="all codes are the same at every layer and pair"):
        knn_purity(same, labels="term_1", controls=False, layers=0, n_bootstrap=100)


def test_codes_without_combinations_have_neighbours_too(planted: Planted) -> None:
    codes = planted("ood")
    labels = codes.labels.drop(columns="combination")
    found = knn_purity(
        LatentCodes(codes.scores, labels, codes.pairs, codes.layers, codes.meta), labels="term_1",
        controls=False, layers=1, pairs=PAIR, n_bootstrap=100)
    assert set(found.table["among"]) == {ALL}
    assert found.table["excess"].item() > 0.7
    assert OTHER not in found.summary()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_nearest_are_those_of_scikit_learn(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MEMORY", 0.004)  # several blocks, the last one smaller
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
