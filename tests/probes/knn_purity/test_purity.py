"""Has the purity of neighbours its closed forms, and is what it could be fooled by counted out?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from latentcode.codes import LatentCodes
from latentcode.probes.knn_purity import purity as module
from latentcode.probes.knn_purity.labels import judged_labels, label_classes
from latentcode.probes.knn_purity.purity import ALL, OTHER, purity, separates


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
    assert list(judged_labels(codes, "query->query")) == [
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
