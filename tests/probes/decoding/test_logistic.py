"""Is the fit scikit-learn's, and is its regularisation chosen across combinations?"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from latentcode.errors import ProbeError
from latentcode.probes.common import logistic
from latentcode.probes.common.logistic import PENALTIES, fit_probe


def clusters_of_classes(
    seed: int = 0, n: int = 400, n_classes: int = 4, d: int = 5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x [n, d], labels [n] and 8 combinations, the class of each being its number mod 4."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(8, size=n)
    y = groups % n_classes
    centres = rng.normal(size=(n_classes, d))
    return centres[y] + rng.normal(size=(n, d)) * [1, 2, 0.1, 5, 1] + 3.0, y, groups


def one_hot(y: np.ndarray, n_classes: int) -> np.ndarray:
    return np.eye(n_classes, dtype=bool)[y]


@pytest.mark.parametrize("seed", range(3))
def test_the_penalty_is_chosen_for_unseen_combinations(seed: int) -> None:
    """Each combination has marks of its own: they tell the class in training, not elsewhere."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(20), 25)
    y = groups % 2
    signal = 0.5 * (2 * y - 1)[:, None] + 1.5 * rng.normal(size=(500, 6))
    marks = 1.5 * rng.normal(size=(20, 30))[groups] + rng.normal(size=(500, 30))
    x = np.concatenate([signal, marks], axis=1)
    across = fit_probe(x, one_hot(y, 2), groups, multilabel=False)
    within = fit_probe(x, one_hot(y, 2), np.arange(500), multilabel=False)
    assert within.selection[0.01] > within.selection[1.0]
    assert across.selection[0.01] < across.selection[1.0]
    assert across.C < within.C / 5


def test_selection_is_scored_on_combinations_outside_the_fold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y, groups = clusters_of_classes()
    folds: list[tuple[np.ndarray, np.ndarray]] = []

    class Recorded(GroupKFold):  # type: ignore[misc]
        def split(self, *args: object, **kwargs: object) -> object:
            for fold in super().split(*args, **kwargs):
                folds.append(fold)
                yield fold

    monkeypatch.setattr(logistic, "GroupKFold", Recorded)
    fit_probe(x, one_hot(y, 4), groups, multilabel=False)
    assert len(folds) == 5
    for fit, score in folds:
        assert not set(groups[fit]) & set(groups[score])
    assert sorted(np.concatenate([score for _, score in folds])) == list(range(len(x)))


def test_selection_looks_at_a_bounded_number_of_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, groups = clusters_of_classes(n=2000)
    everything = fit_probe(x, one_hot(y, 4), groups, multilabel=False)
    monkeypatch.setattr(logistic, "SELECTION_INSTANCES", 300)
    few, again = (fit_probe(x, one_hot(y, 4), groups, multilabel=False) for _ in range(2))
    assert few.selection != everything.selection
    assert few.selection == again.selection
    np.testing.assert_array_equal(few.weights, again.weights)
    best = max(sorted(PENALTIES, reverse=True), key=lambda penalty: few.selection[penalty])
    np.testing.assert_allclose(few.C, 1 / (best * len(x)))


def test_fewer_combinations_than_folds_use_fewer_folds() -> None:
    x, y, groups = clusters_of_classes()
    probe = fit_probe(x, one_hot(y, 4), groups % 2, multilabel=False)
    assert probe.converged


def test_a_class_that_was_never_seen_is_never_given() -> None:
    x, y, groups = clusters_of_classes()
    probe = fit_probe(x, one_hot(y, 6), groups, multilabel=False)
    assert not probe.predict(100.0 * x)[:, 4:].any()
    labels = one_hot(y, 6)
    labels[:, 5] = True
    answers = fit_probe(x, labels, groups, multilabel=True).predict(100.0 * x)
    assert not answers[:, 4].any()
    assert answers[:, 5].all()


def test_a_head_that_never_changes_is_ignored() -> None:
    x, y, groups = clusters_of_classes()
    constant = np.concatenate([x, np.full((len(x), 1), np.float32(0.1))], axis=1)
    with_it = fit_probe(constant, one_hot(y, 4), groups, multilabel=False)
    without = fit_probe(x, one_hot(y, 4), groups, multilabel=False)
    np.testing.assert_allclose(with_it.weights[:, -1], 0.0, atol=1e-12)
    constant[:, -1] = 1e6
    np.testing.assert_array_equal(with_it.predict(constant), without.predict(x))


def test_a_fit_that_does_not_converge_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, groups = clusters_of_classes()
    monkeypatch.setattr(logistic, "MAX_ITERATIONS", 1)
    assert not fit_probe(x, one_hot(y, 4), groups, multilabel=False).converged


def test_one_scale_keeps_frequent_columns_above_rare_ones() -> None:
    """A frequent column tells the class; rare ones of its weight are noise that drowns it."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(300) % 2 == 0)
    x = np.concatenate([(rng.random((300, 400)) < 0.01).astype(float),
                        (y[:, None] + rng.normal(0.0, 0.4, (300, 1)))], axis=1)
    labels, groups = np.stack([y, ~y], axis=1), np.arange(200)
    hits = {common: (fit_probe(x[:200], labels[:200], groups, multilabel=False,
                               common_scale=common, penalties=[0.01]).predict(x[200:])
                     == labels[200:]).all(axis=1).mean() for common in (False, True)}
    assert hits[True] > 0.8 > hits[False] + 0.1


def test_one_scale_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=(80, 3)) * [1.0, 5.0, 0.2], np.ones((80, 1))], axis=1)
    y = x[:, 0] + rng.normal(size=80) > 0
    probe = fit_probe(x, np.stack([~y, y], axis=1), np.arange(80), multilabel=False,
                      common_scale=True, penalties=[0.1])
    scale = np.sqrt(x.var(axis=0).mean())
    model = LogisticRegression(C=1 / (0.1 * 80), tol=1e-10, max_iter=1_000).fit(
        (x[:, :3] - x[:, :3].mean(0)) / scale, y)
    np.testing.assert_allclose(probe.weights[1, :3] - probe.weights[0, :3], model.coef_[0],
                               atol=1e-3)
    assert np.isinf(probe.scale[3])


@pytest.mark.parametrize("penalty", [0.1, 1e-4])
@pytest.mark.parametrize("multilabel", [True, False])
def test_the_gradient_vanishes_at_the_answer(penalty: float, multilabel: bool) -> None:
    x, classes, groups = clusters_of_classes()
    y = one_hot(classes, 4) | (one_hot((classes + 1) % 4, 4) if multilabel else False)
    probe = fit_probe(x, y, groups, multilabel=multilabel, penalties=[penalty])
    assert probe.converged
    z = (x - probe.mean) / probe.scale
    scores = z @ probe.weights.T + probe.bias
    given = expit(scores) if multilabel else softmax(scores, axis=1)
    share = y.mean(axis=0)
    weights = np.where(y, 0.5 / share, 0.5 / (1.0 - share)) if multilabel else 1.0
    slope = (weights * (given - y)).T @ z / len(z) + penalty * probe.weights
    assert np.abs(slope).max() <= logistic.TOLERANCE
    assert np.abs((weights * (given - y)).mean(axis=0)).max() <= logistic.TOLERANCE


@pytest.mark.parametrize("has", [True, False])
def test_what_one_combination_alone_has_or_lacks_varies_in_no_other_fold(has: bool) -> None:
    x, _, _ = clusters_of_classes()
    groups = np.arange(len(x)) % 5
    probe = fit_probe(x, ((groups == 0) == has)[:, None], groups, multilabel=True)
    assert probe.converged
    assert len(probe.selection) == len(PENALTIES)


@pytest.mark.parametrize("missing", [[], [1], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("multilabel", [True, False])
def test_probes_agree_whichever_solver_fits_them(
    missing: list[int], multilabel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, classes, _ = clusters_of_classes()
    y, groups = one_hot(classes, 4), np.arange(len(x)) % 7
    keep = ~np.isin(classes, missing)
    x, y, groups = x[keep], y[keep], groups[keep]
    if multilabel:
        y = np.concatenate([y, x[:, :1] > 3.0], axis=1)
    monkeypatch.setattr(logistic, "TOLERANCE", 1e-8)
    if len(missing) == 3 and not multilabel:
        with pytest.raises(ProbeError, match="a single class"):
            fit_probe(x, y, groups, multilabel=multilabel)
        return
    few = fit_probe(x, y, groups, multilabel=multilabel)
    monkeypatch.setattr(logistic, "MOST_PARAMETERS", 0)
    many = fit_probe(x, y, groups, multilabel=multilabel)
    assert few.penalty == many.penalty
    assert few.converged
    assert many.converged
    np.testing.assert_allclose(few.weights, many.weights, atol=1e-3)
    np.testing.assert_array_equal(few.predict(x), many.predict(x))
    assert (few.bias[missing] == -np.inf).all()
    if len(missing) == 3:
        assert few.bias[3] == np.inf
