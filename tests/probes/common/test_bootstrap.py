"""Are the scores scikit-learn's, and do the intervals cover what they should?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from latentcode.probes.common.statistics import (
    accuracy,
    class_f1,
    count_by_cluster,
    macro_f1,
    mean_and_interval,
    percentile_interval,
    resample,
)


def problem(seed: int, n: int, n_classes: int, multilabel: bool) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    if multilabel:
        truth, answer = rng.random((2, n, n_classes)) < 0.4
        truth[0, 0] = True
    else:
        truth, answer = np.eye(n_classes, dtype=bool)[rng.integers(n_classes, size=(2, n))]
    return truth, answer, np.unique(rng.integers(5, size=n), return_inverse=True)[1]


sizes = {"seed": st.integers(0, 10_000), "n": st.integers(1, 40), "n_classes": st.integers(2, 7)}


@given(**sizes)
def test_single_label_scores_equal_scikit_learn(seed: int, n: int, n_classes: int) -> None:
    truth, answer, cluster = problem(seed, n, n_classes, multilabel=False)
    y, guess = truth.argmax(1), answer.argmax(1)
    counts = count_by_cluster(truth, answer, cluster).sum(1)
    assert accuracy(counts) == pytest.approx(accuracy_score(y, guess), abs=1e-12)
    occurring = np.unique(y)
    assert macro_f1(counts) == pytest.approx(
        f1_score(y, guess, labels=occurring, average="macro", zero_division=0.0), abs=1e-12)


@given(**sizes)
def test_multi_label_scores_equal_scikit_learn(seed: int, n: int, n_classes: int) -> None:
    truth, answer, cluster = problem(seed, n, n_classes, multilabel=True)
    counts = count_by_cluster(truth, answer, cluster).sum(1)
    occurs = truth.any(axis=0)
    expected = np.array([f1_score(truth[:, c], answer[:, c]) for c in np.flatnonzero(occurs)])
    np.testing.assert_allclose(class_f1(counts)[occurs], expected, atol=1e-12)
    assert np.isnan(class_f1(counts)[~occurs]).all()
    assert macro_f1(counts) == pytest.approx(expected.mean(), abs=1e-12)


@given(**sizes, multilabel=st.booleans())
def test_a_replicate_is_the_score_of_the_drawn_instances(
    seed: int, n: int, n_classes: int, multilabel: bool
) -> None:
    truth, answer, cluster = problem(seed, n, n_classes, multilabel)
    n_clusters = int(cluster.max()) + 1
    weights = resample(n_clusters, 3, np.random.default_rng(seed))
    assert (weights.sum(axis=1) == n_clusters).all()
    replicates = macro_f1(weights @ count_by_cluster(truth, answer, cluster))
    for weight, value in zip(weights, replicates, strict=True):
        drawn = np.repeat(np.arange(n), weight[cluster].astype(int))
        if not truth[drawn].any():
            assert np.isnan(value)
            continue
        again = count_by_cluster(truth[drawn], answer[drawn], np.zeros(len(drawn), dtype=int))
        assert value == pytest.approx(macro_f1(again.sum(1)), abs=1e-12)


def test_intervals_cover_the_truth_when_instances_of_a_combination_are_alike() -> None:
    """A probe that is right on 70 % of the instances, and on most or few of a combination."""
    rng = np.random.default_rng(0)
    n_clusters, per_cluster, simulations = 12, 30, 150
    clustered, unclustered = 0, 0
    for _ in range(simulations):
        right = rng.random((n_clusters, per_cluster)) < rng.beta(1.4, 0.6, size=(n_clusters, 1))
        cluster = np.repeat(np.arange(n_clusters), per_cluster)
        truth = np.eye(2, dtype=bool)[rng.integers(2, size=right.size)]
        answer = np.where(right.reshape(-1, 1), truth, ~truth)
        for clusters in (cluster, np.arange(right.size)):
            n = int(clusters.max()) + 1
            weights = resample(n, 300, rng)
            replicates = accuracy(weights @ count_by_cluster(truth, answer, clusters))
            low, high = percentile_interval(replicates, n)
            inside = bool(low <= 0.7 <= high)
            clustered += inside and clusters is cluster
            unclustered += inside and clusters is not cluster
    assert 0.90 <= clustered / simulations <= 0.99
    assert unclustered / simulations < 0.6


def test_interval_of_many_clusters_is_the_plain_percentile_interval() -> None:
    replicates = np.random.default_rng(0).normal(size=(50_000, 2))
    low, high = percentile_interval(replicates, n_clusters=100_000)
    np.testing.assert_allclose(low, np.quantile(replicates, 0.025, axis=0), atol=1e-3)
    np.testing.assert_allclose(high, np.quantile(replicates, 0.975, axis=0), atol=1e-3)
    narrow = percentile_interval(replicates, n_clusters=6)
    assert (narrow[0] < low).all()
    assert (narrow[1] > high).all()


@pytest.mark.parametrize("n", [1, 3, 5])
def test_a_few_combinations_give_no_interval(n: int) -> None:
    low, high = percentile_interval(np.ones((100, 3)), n_clusters=n)
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_a_class_that_is_never_drawn_gives_no_interval_and_no_warning() -> None:
    replicates = np.stack([np.linspace(0, 1, 100), np.full(100, np.nan)], axis=1)
    low, high = percentile_interval(replicates, n_clusters=10)
    assert low[0] < high[0]
    assert np.isnan(low[1])
    assert np.isnan(high[1])


def test_means_and_intervals_are_of_instances_and_drawn_by_combination() -> None:
    # Five combinations of two instances are 1/2, 0 on average, five of one are 1, 3.
    x = np.array([[1.0, 0.0], [0.0, 0.0]] * 5 + [[1.0, 3.0]] * 5)
    combination = np.concatenate([np.repeat(np.arange(5), 2), np.arange(5, 10)])
    mean, low, high, n = mean_and_interval(x, combination, 2_000, 0)
    assert (mean.tolist(), n) == ([pytest.approx(2 / 3), 1.0], 10)
    assert (low[0] > 0.5, high[0] < 1.0) == (True, True)
    assert 0.0 < low[1] < 1.0 < high[1] < 3.0
    nothing = mean_and_interval(x[:0], np.array([]), 200, 0)
    assert np.isnan(nothing[0]).all()
    assert nothing[3] == 0
