"""Does Newton's method end at the minimum, and say so only there?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from latentcode.errors import ProbeError
from latentcode.probes.decoding import logistic, newton
from latentcode.probes.decoding.newton import fit_binary, fit_multinomial


def problem(
    seed: int, n: int = 600, d: int = 4, n_classes: int = 4, strength: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return z [n, d], correlated and of unlike sizes, and classes [n], unlike in number."""
    rng = np.random.default_rng(seed)
    classes = np.minimum(rng.geometric(0.4, size=n) - 1, n_classes - 1)
    z = strength * rng.normal(size=(n_classes, d))[classes] + rng.normal(size=(n, d))
    return z @ rng.normal(size=(d, d)), classes


def objective(theta: np.ndarray, z: np.ndarray, classes: np.ndarray, penalty: float) -> float:
    scores = log_softmax(z @ theta[:, :-1].T + theta[:, -1], axis=1)
    return float(-scores[np.arange(len(z)), classes].mean()
                 + penalty / 2 * np.square(theta[:, :-1]).sum())


def numerical_gradient(theta: np.ndarray, *args: object, h: float = 1e-6) -> np.ndarray:
    gradient = np.empty(theta.size)
    for i in range(theta.size):
        step = np.zeros(theta.size)
        step[i] = h
        step = step.reshape(theta.shape)
        gradient[i] = (objective(theta + step, *args) - objective(theta - step, *args)) / (2 * h)
    return gradient


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), log_penalty=st.integers(-4, 0),
       strength=st.sampled_from([0.0, 1.0, 5.0]))
def test_the_gradient_vanishes_at_the_answer(
    seed: int, log_penalty: int, strength: float
) -> None:
    z, classes = problem(seed, strength=strength)
    penalty = 10.0**log_penalty
    theta, converged = fit_multinomial(z, classes, 4, penalty, tolerance=1e-8, max_iterations=100)
    assert converged
    assert np.abs(numerical_gradient(theta, z, classes, penalty)).max() < 1e-6
    assert abs(theta[:, -1].mean()) < 1e-10


@pytest.mark.parametrize("penalty", [0.1, 1e-4])
def test_the_answer_is_scikit_learns(penalty: float) -> None:
    """With the curvature of a part of the instances, as of all of them."""
    z, classes = problem(1, n=3 * newton.PART)
    theta, converged = fit_multinomial(z, classes, 4, penalty, tolerance=1e-7, max_iterations=50)
    assert converged
    reference = LogisticRegression(C=1 / (penalty * len(z)), tol=1e-9, max_iter=2_000,
                                   solver="newton-cg").fit(z, classes)
    np.testing.assert_allclose(theta[:, :-1], reference.coef_, atol=2e-4, rtol=2e-4)
    np.testing.assert_allclose(theta[:, -1], reference.intercept_ - reference.intercept_.mean(),
                               atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("penalty", [0.1, 1e-4])
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("strength", [1.0, 5.0])
def test_the_answers_of_several_classes_are_scikit_learns(
    penalty: float, balanced: bool, strength: float
) -> None:
    """Those of classes that are rare, frequent and, but for the penalty, told apart wholly, too."""
    z, classes = problem(1, n=newton.BLOCK + 200, strength=strength)
    y = np.stack([classes == 3, classes > 0, np.arange(len(z)) < 3, z[:, 0] > 0.5], axis=1)
    theta, converged = fit_binary(z, y, penalty, balanced=balanced, tolerance=1e-8,
                                  max_iterations=50)
    assert converged
    for own, of_class in zip(theta, y.T, strict=True):
        reference = LogisticRegression(
            C=1 / (penalty * len(z)), tol=1e-9, max_iter=2_000, solver="newton-cg",
            class_weight="balanced" if balanced else None).fit(z, of_class)
        np.testing.assert_allclose(own[:-1], reference.coef_[0], atol=2e-4, rtol=2e-4)
        np.testing.assert_allclose(own[-1:], reference.intercept_, atol=2e-4, rtol=2e-4)
    again, converged = fit_binary(z, y, penalty, balanced=balanced, tolerance=1e-8,
                                  max_iterations=1, start=theta)
    assert converged
    np.testing.assert_array_equal(again, theta)
    few = fit_binary(z, y, penalty, balanced=balanced, tolerance=1e-8, max_iterations=1)
    assert not few[1]


def test_a_part_that_misleads_is_given_up() -> None:
    """Every second instance, the part, is noise; the others are told apart with ease."""
    z, classes = problem(2, n=2 * newton.PART, strength=4.0)
    z[::2] = 0.01 * np.random.default_rng(0).normal(size=z[::2].shape)
    theta, converged = fit_multinomial(z, classes, 4, 1e-3, tolerance=1e-7, max_iterations=50)
    assert converged
    assert np.abs(numerical_gradient(theta, z, classes, 1e-3)).max() < 1e-6


def test_a_start_at_the_answer_is_the_answer() -> None:
    z, classes = problem(3)
    theta, _ = fit_multinomial(z, classes, 4, 0.01, tolerance=1e-8, max_iterations=50)
    again, converged = fit_multinomial(z, classes, 4, 0.01, tolerance=1e-8, max_iterations=1,
                                       start=theta)
    assert converged
    np.testing.assert_allclose(again, theta, atol=1e-12)


def test_too_few_steps_are_reported_with_the_curvature_of_a_part() -> None:
    z, classes = problem(4, n=2 * newton.PART)
    _, converged = fit_multinomial(z, classes, 4, 1e-4, tolerance=1e-13, max_iterations=1)
    assert not converged


def test_too_few_steps_are_reported() -> None:
    z, classes = problem(4)
    _, converged = fit_multinomial(z, classes, 4, 1e-3, tolerance=1e-8, max_iterations=1)
    assert not converged


def _by_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MOST_PARAMETERS", "MOST_FEATURES"):
        monkeypatch.setattr(logistic, limit, 0)


@pytest.mark.parametrize("has", [True, False])
def test_what_one_combination_alone_has_or_lacks_varies_in_no_other_fold(
    has: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, _ = problem(6)
    groups = np.arange(len(z)) % 5
    y = ((groups == 0) == has)[:, None]
    ours = logistic.fit_probe(z, y, groups, multilabel=True)
    _by_scikit_learn(monkeypatch)
    theirs = logistic.fit_probe(z, y, groups, multilabel=True)
    assert ours.converged
    assert ours.selection == theirs.selection
    np.testing.assert_array_equal(ours.predict(z), theirs.predict(z))


@pytest.mark.parametrize("missing", [[], [1], [1, 2], [0, 1, 2]])
@pytest.mark.parametrize("multilabel", [True, False])
def test_probes_agree_whichever_solver_fits_them(
    missing: list[int], multilabel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, classes = problem(5)
    y = np.eye(4, dtype=bool)[classes]
    groups = np.arange(len(z)) % 7
    keep = ~np.isin(classes, missing)
    z, y, groups = z[keep], y[keep], groups[keep]
    if multilabel:
        y = np.concatenate([y, z[:, :1] > 0], axis=1)
    monkeypatch.setattr(logistic, "TOLERANCE", 1e-8)
    if len(missing) == 3 and not multilabel:
        with pytest.raises(ProbeError, match="a single class"):
            logistic.fit_probe(z, y, groups, multilabel=multilabel)
        return
    ours = logistic.fit_probe(z, y, groups, multilabel=multilabel)
    _by_scikit_learn(monkeypatch)
    theirs = logistic.fit_probe(z, y, groups, multilabel=multilabel)
    assert ours.penalty == theirs.penalty
    assert ours.converged
    assert theirs.converged
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-3)
    np.testing.assert_array_equal(ours.predict(z), theirs.predict(z))
    assert (ours.bias[missing] == -np.inf).all()
    if len(missing) == 3:
        assert ours.bias[3] == np.inf
