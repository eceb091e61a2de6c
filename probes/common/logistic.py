"""Logistic regression whose regularisation is chosen to generalise to unseen combinations.

The choice is a cross-validation inside the training codes in which a combination is never on
both sides of a fold. The grid is one of penalties per instance, lambda = 1 / (C n): with a grid
of C, the penalty would fade as more instances of the same combinations are drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from threadpoolctl import threadpool_limits

from latentcode.errors import ProbeError, check
from latentcode.probes.common.bootstrap import ClassCounts, accuracy, count_by_cluster, macro_f1

PENALTIES: tuple[float, ...] = (1.0, 0.1, 1e-2, 1e-3, 1e-4)
"""Penalties per instance lambda that are tried, in falling order: the fit minimises the mean log
loss plus lambda / 2 times the squared weights of the standardised codes."""
N_FOLDS = 5
"""Folds of the cross-validation, fewer where there are fewer combinations."""
SELECTION_INSTANCES = 2_000
"""Most instances that the choice looks at; the chosen penalty is then fitted on all."""
TOLERANCE = 1e-5
"""Largest entry of the gradient of the mean loss at which a fit is done. Scikit-learn's 1e-4
stops short of the minimum where the penalty is weak, at a point that depends on the start."""
MAX_ITERATIONS = 200
"""Most Newton iterations, of which a fit needs about ten; one that needs more is reported as
not converged."""
MOST_PARAMETERS = 512
"""Most weights and biases of a fit for which the matrix of second derivatives is worth its cost."""
LEAST_PROBABILITY = 1e-4
"""A class that was given less than this counts as if it had been given this much in a log loss: a
class that training lacks would make the mean infinite."""


@dataclass(frozen=True)
class LogisticProbe:
    """A fitted probe: scores s = W (x - mean) / scale + b.

    weights    W, float64 [class, d]
    bias       b, float64 [class]; -inf for a class that was never seen
    mean, scale  of the training codes, float64 [d]
    multilabel  whether every class with s > 0 is given (one-vs-rest), or the largest s alone
    penalty    lambda, the penalty per instance of the fit
    C          1 / (lambda n), the same as scikit-learn writes it
    selection  penalty per instance -> score of the cross-validation; empty without a choice
    converged  whether the optimiser reached its tolerance
    """

    weights: np.ndarray
    bias: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    multilabel: bool
    penalty: float
    C: float
    selection: Mapping[float, float]
    converged: bool

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return which classes are given to x [N, d], bool [N, class]."""
        return _answer(self._scores(x), self.multilabel)

    def log_losses(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return -log p(class | x) of the true classes y bool [N, class] in nats, float64 [N].

        `ProbeError` for a multi-label probe: its balanced weights make no probabilities.
        """
        check(not self.multilabel, "a multi-label probe has no log loss; expected one that gives "
              "a single class", ProbeError)
        return _log_losses(self._scores(x), y)

    def _scores(self, x: np.ndarray) -> np.ndarray:
        return np.asarray((x - self.mean) / self.scale @ self.weights.T + self.bias)


def fit_probe(
    x: np.ndarray,
    y: np.ndarray,
    groups: np.ndarray,
    *,
    multilabel: bool,
    penalties: Sequence[float] = PENALTIES,
    n_folds: int = N_FOLDS,
    selection_instances: int | None = SELECTION_INSTANCES,
    selected_by: Literal["hits", "log_loss"] = "hits",
    common_scale: bool = False,
    seed: int = 0,
) -> LogisticProbe:
    """Return argmin_W,b of the mean log loss + lambda / 2 |W|^2, with lambda cross-validated.

    x       codes [N, d]; standardised with their own mean and standard deviation
    common_scale  divide by one number, the root mean square of all standard deviations: of counts,
            where rare columns would otherwise weigh as much as frequent ones and drown them
    y       bool [N, class]; one True per row unless `multilabel`
    groups  int [N], the combination of each instance: `GroupKFold` keeps it in one fold
    selected_by  what the choice of lambda looks at: answers that are right, or probabilities

    The predictions of all folds are pooled and scored by accuracy (by macro F1 if `multilabel`),
    or by minus their mean log loss;
    among equals the strongest penalty wins. With fewer combinations than folds there are as many
    folds as combinations. The yes and no of each class of a multi-label problem weigh the same,
    since most classes are rare and a probe would otherwise do best by never giving them.
    `ProbeError` for fewer than two combinations, for values that are not
    finite, and where no class varies.
    """
    x = np.ascontiguousarray(x, dtype=np.float64)
    check(bool(np.isfinite(x).all()), "the codes hold values that are not finite", ProbeError)
    varies = y.any(axis=0) & ~y.all(axis=0)
    check(bool(varies.any()), "there is a single class in training", ProbeError)
    n_groups = len(np.unique(groups))
    check(n_groups >= 2, f"training holds {n_groups} combination; expected at least 2, because "
          "the regularisation is chosen across combinations", ProbeError)
    mean, scale = x.mean(axis=0), x.std(axis=0)
    # A head that never changes carries nothing; its standardised value is 0, not rounding noise.
    scale = np.where(scale > 1e-10 * np.abs(mean), scale, np.inf)
    if common_scale:
        constant = np.isinf(scale)
        scale = np.where(constant, scale, np.sqrt(np.square(np.where(constant, 0.0, scale)).mean()))
    z = (x - mean) / scale

    falling = sorted(penalties, reverse=True)
    selection: dict[float, float] = {}
    best = falling[0]
    if len(falling) > 1:
        with threadpool_limits(1, user_api="blas"):
            selection = _cross_validate(z, y, groups, multilabel, falling,
                                        min(n_folds, n_groups), selection_instances, seed,
                                        selected_by)
        best = max(falling, key=lambda penalty: selection[penalty])
    # Of many small products: two threads that wait for each other after each take twice as long.
    with threadpool_limits(1, user_api="blas"):
        weights, bias, converged = next(_fit_path(z, y, multilabel, [best]))
    return LogisticProbe(weights, bias, mean, scale, multilabel, best, 1.0 / (best * len(z)),
                         selection, converged)


def _cross_validate(
    z: np.ndarray, y: np.ndarray, groups: np.ndarray, multilabel: bool,
    penalties: Sequence[float], n_folds: int, limit: int | None, seed: int, selected_by: str,
) -> dict[float, float]:
    """Return the score of each penalty on combinations outside its fold."""
    if limit is not None and len(z) > limit:
        rows = np.sort(np.random.default_rng(seed).choice(len(z), limit, replace=False))
        # Dropping a combination could leave fewer of them than folds.
        first = np.unique(groups, return_index=True)[1]
        rows = np.union1d(rows, first)
        z, y, groups = z[rows], y[rows], groups[rows]
    scores = np.zeros((len(penalties), *y.shape))
    for fit, score in GroupKFold(n_folds).split(z, groups=groups):
        path = _fit_path(z[fit], y[fit], multilabel, penalties)
        for i, (weights, bias, _) in enumerate(path):
            scores[i, score] = z[score] @ weights.T + bias
    if selected_by == "log_loss":
        return {penalty: -float(_log_losses(of_penalty, y).mean())
                for penalty, of_penalty in zip(penalties, scores, strict=True)}
    one_cluster = np.zeros(len(y), dtype=np.int64)
    metric = macro_f1 if multilabel else accuracy

    def pooled(answer: np.ndarray) -> float:
        counts: ClassCounts = count_by_cluster(y, answer, one_cluster)
        return float(metric(counts.total()))

    return {penalty: pooled(_answer(of_penalty, multilabel))
            for penalty, of_penalty in zip(penalties, scores, strict=True)}


def _fit_path(
    z: np.ndarray, y: np.ndarray, multilabel: bool, penalties: Sequence[float]
) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
    """Yield (weights [class, d], bias [class], converged) for each penalty, warm-started."""
    n, d = z.shape
    seen, always = np.flatnonzero(y.any(axis=0)), np.asarray(y.all(axis=0))
    # What was never seen is never given; what was always seen is always given.
    known = np.full(y.shape[1], -np.inf)
    if multilabel:
        fitted, known[always] = seen[~always[seen]], np.inf
        targets = list(y.T[fitted])
    else:  # of two classes that exclude each other, the first has score 0
        fitted, known[seen] = seen[1:] if len(seen) <= 2 else seen, 0.0
        targets = [y[:, seen].argmax(axis=1)] if len(seen) > 1 else []
    n_parameters = (d + 1) * (1 if multilabel else len(fitted))
    models = [LogisticRegression(
        solver="newton-cholesky" if n_parameters <= MOST_PARAMETERS else "newton-cg",
        tol=TOLERANCE, max_iter=MAX_ITERATIONS, warm_start=True,
        class_weight="balanced" if multilabel else None) for _ in targets]
    for penalty in penalties:
        weights, bias, converged = np.zeros((y.shape[1], d)), known.copy(), True
        for model, target in zip(models, targets, strict=True):
            converged &= _converges(model.set_params(C=1.0 / (penalty * n)), z, target)
        if models:
            weights[fitted] = np.concatenate([model.coef_ for model in models])
            bias[fitted] = np.concatenate([model.intercept_ for model in models])
        yield weights, bias, converged


def _converges(model: LogisticRegression, z: np.ndarray, target: np.ndarray) -> bool:
    """Fit `model` and return whether its optimiser converged."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(z, target)
    converged = True
    for warning in caught:
        if (issubclass(warning.category, ConvergenceWarning)
                or "line search" in str(warning.message).lower()):
            converged = False
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename,
                                   warning.lineno)
    return converged


def _log_losses(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -np.maximum(log_softmax(scores, axis=1)[y], np.log(LEAST_PROBABILITY))


def _answer(scores: np.ndarray, multilabel: bool) -> np.ndarray:
    if multilabel:
        return scores > 0.0
    answer = np.zeros(scores.shape, dtype=bool)
    answer[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return answer
