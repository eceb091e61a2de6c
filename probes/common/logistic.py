"""Logistic regression whose regularisation is chosen to generalise to unseen combinations.

The choice is a cross-validation inside the training codes in which a combination is never on
both sides of a fold. The grid is one of penalties per instance, lambda = 1 / (C n): with a grid
of C, the penalty would fade as more instances of the same combinations are drawn.

Is there operation in features beyond what the answer tells of it? A code that determines the answer
tells something of the rule, as the answer does. So two probes are compared: one that knows the
answer, and one that knows the answer and the features (`gains`). What is known enters as
log p(class | answer), the table of the training split, as a linear probe on [one-hot answer] would
learn it; with answer and operands it is log p(class | answer, operands), which no linear probe on
one-hot vectors could learn: they determine the answer together with the rule.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from threadpoolctl import threadpool_limits

from latentcode.errors import ProbeError, check
from latentcode.probes.common.labels import Target
from latentcode.probes.common.statistics import (
    Resampled,
    accuracy,
    count_by_cluster,
    macro_f1,
    rows_of_others,
)
from latentcode.prompts.pairs import FACTORS
from latentcode.subjects import Subject
from latentcode.subjects.prompts import PromptSubject
from latentcode.subjects.tasks import TaskSubject

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

        Of single-label probes: balanced weights make no probabilities.
        """
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
    or by minus their mean log loss; among equals the strongest penalty wins. With fewer
    combinations than folds there are as many folds as combinations. The yes and no of each class of
    a multi-label problem weigh the same, since most classes are rare and a probe would otherwise do
    best by never giving them.
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
    # Of many small products: two threads that wait for each other after each take twice as long.
    with threadpool_limits(1, user_api="blas"):
        if len(falling) > 1:
            selection = _cross_validate(z, y, groups, multilabel, falling, seed, selected_by)
        best = max(falling, key=lambda penalty: selection.get(penalty, 0.0))
        weights, bias, converged = next(_fit_path(z, y, multilabel, [best]))
    return LogisticProbe(weights, bias, mean, scale, multilabel, best, 1.0 / (best * len(z)),
                         selection, converged)


def _cross_validate(
    z: np.ndarray, y: np.ndarray, groups: np.ndarray, multilabel: bool,
    penalties: Sequence[float], seed: int, selected_by: str,
) -> dict[float, float]:
    """Return the score of each penalty on combinations outside its fold."""
    if len(z) > SELECTION_INSTANCES:
        rows = np.sort(np.random.default_rng(seed).choice(
            len(z), SELECTION_INSTANCES, replace=False))
        # Dropping a combination could leave fewer of them than folds.
        first = np.unique(groups, return_index=True)[1]
        rows = np.union1d(rows, first)
        z, y, groups = z[rows], y[rows], groups[rows]
    scores = np.zeros((len(penalties), *y.shape))
    n_folds = min(N_FOLDS, len(np.unique(groups)))
    for fit, score in GroupKFold(n_folds).split(z, groups=groups):
        path = _fit_path(z[fit], y[fit], multilabel, penalties)
        for i, (weights, bias, _) in enumerate(path):
            scores[i, score] = z[score] @ weights.T + bias
    if selected_by == "log_loss":
        values = [-_log_losses(of_penalty, y).mean() for of_penalty in scores]
    else:
        metric = macro_f1 if multilabel else accuracy
        pooled = np.zeros(len(y), dtype=np.int64)
        values = [metric(count_by_cluster(y, _answer(of_penalty, multilabel), pooled).sum(1))
                  for of_penalty in scores]
    return dict(zip(penalties, map(float, values), strict=True))


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
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.set_params(C=1.0 / (penalty * n)).fit(z, target)
            converged &= not any(issubclass(warning.category, ConvergenceWarning)
                                 or "line search" in str(warning.message).lower()
                                 for warning in caught)
        if models:
            weights[fitted] = np.concatenate([model.coef_ for model in models])
            bias[fitted] = np.concatenate([model.intercept_ for model in models])
        yield weights, bias, converged


def _log_losses(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return -log p of the true classes y bool [N, class], float64 [N]."""
    return -np.maximum(log_softmax(scores, axis=1)[y], np.log(LEAST_PROBABILITY))


def _answer(scores: np.ndarray, multilabel: bool) -> np.ndarray:
    """Return which classes are given, bool [N, class]."""
    if multilabel:
        return scores > 0.0
    answer = np.zeros(scores.shape, dtype=bool)
    answer[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return answer


N_BINS = 8
"""Bins of equal share of the training instances that a measurement, such as the answer of fuzzy
logic, is put into: as many as SRAVEN has symbols."""
ANSWER, OPERAND = "answer", "operand"
"""The column of the answer, and what those of operands begin with (`Task.row_labels`)."""
TABLE_INSTANCES = 65_536
"""Instances of the training split that the tables are counted on; no model reads them."""


def row_labels(subject: Subject, labels: pd.DataFrame, pair: str) -> pd.DataFrame:
    """Return operation, operands and answer of problems that have these labels."""
    if isinstance(subject, TaskSubject):
        return subject.task.row_labels(labels, subject.task.pairs[pair].token)
    known = [name for name in (*FACTORS, ANSWER) if name in labels]
    return labels[known if FACTORS[0] in known else list(subject.probe_labels)].copy()


def counted_labels(subject: Subject, n: int, seed: int) -> pd.DataFrame:
    """Return the labels of training problems by which it is counted what goes with what: n others
    than those that are read, where there are others."""
    if isinstance(subject, TaskSubject):  # those that are read are drawn with the seed itself
        return subject.task.labels(subject.instances("train", n, seed=seed + 1))
    assert isinstance(subject, PromptSubject)
    prompts = subject.prompts
    return prompts.labels.iloc[prompts.rows("train")].reset_index(drop=True)


def operation_labels(
    subject: Subject, pair: str, labels: Sequence[pd.DataFrame],
    counted: Sequence[pd.DataFrame] = (),
) -> list[pd.DataFrame]:
    """Return operation, operands and answer of the problems at a pair, beside their other labels.

    labels   of training problems, then of others
    counted  of problems by which it is counted what goes with what

    Measurements are bins 1 .. N_BINS, between the quantiles of the training problems.
    """
    frames = [row_labels(subject, frame, pair) for frame in (*labels, *counted)]
    for column in frames[0].columns[frames[0].dtypes.map(lambda dtype: dtype.kind == "f")]:
        edges = np.quantile(frames[0][column], np.linspace(0, 1, N_BINS + 1)[1:-1])
        for frame in frames:
            frame[column] = 1 + np.searchsorted(edges, frame[column].to_numpy())
    further = [frame[[name for name in frame if name not in frames[0]]] for frame in labels]
    return [*(pd.concat(both, axis=1) for both in zip(frames, further, strict=False)),
            *frames[len(labels):]]


@dataclass(frozen=True)
class Known:
    """What is known beside features: log p(class | known labels), float64 [N, class].

    given   the name of what is known
    losses  of the probe that has nothing else, on the held-out instances, nats, float64 [N]
    """

    given: str
    train: np.ndarray
    heldout: np.ndarray
    losses: np.ndarray


def log_posteriors(
    label: str, known: Sequence[str], target: Target, counted: pd.DataFrame,
    frames: Sequence[pd.DataFrame],
) -> list[np.ndarray]:
    """Return log p(class | known labels) of the instances of some frames, float64 [N, class].

    counted  instances whose classes and known labels are counted; to each cell the prior is
             added, with the weight of one instance
    """
    together = pd.concat([each[list(known)] for each in (counted, *frames)])
    cells = together.groupby(list(known), sort=False, observed=True).ngroup().to_numpy()
    index = {value: i for i, value in enumerate(target.classes)}
    # A class of few training instances alone may be missing among those that are decoded.
    seen = counted[label].isin(index).to_numpy()
    counts = np.zeros((cells.max() + 1, len(index)))
    np.add.at(counts, (cells[:len(counted)][seen], counted.loc[seen, label].map(index)), 1.0)
    prior = counts.sum(axis=0) / counts.sum()
    share = (counts + prior) / (counts.sum(axis=1, keepdims=True) + 1.0)
    table = np.log(np.maximum(share, LEAST_PROBABILITY))
    ends = np.cumsum([len(counted), *map(len, frames)])
    return [table[cells[first:last]] for first, last in pairwise(ends)]


def known_beside(
    targets: Mapping[str, Target], frames: Sequence[pd.DataFrame], groups: np.ndarray, seed: int
) -> dict[str, list[Known]]:
    """Return what may be known beside features, by label, of those of the operation: the answer,
    or the answer and all operands.

    frames  labels of training, held-out and counted instances (`operation_labels`)
    """
    train, heldout, counted = frames
    operands = tuple(str(name) for name in counted if str(name).startswith(OPERAND))
    conditions: dict[str, tuple[str, ...]] = {ANSWER: (ANSWER,)} if ANSWER in counted else {}
    if conditions and operands:
        conditions["answer and operands"] = (ANSWER, *operands)
    known: dict[str, list[Known]] = {}
    for label, target in targets.items():
        if (target.multilabel or not target.varies or label not in counted
                or label in (ANSWER, *operands)):
            continue
        for given, columns in conditions.items():
            x, x_heldout = log_posteriors(label, columns, target, counted, (train, heldout))
            losses = _fit(x, target, groups, seed).log_losses(x_heldout, target.heldout)
            known.setdefault(label, []).append(Known(given, x, x_heldout, losses))
    return known


def gains(
    known: Known, train: np.ndarray, heldout: np.ndarray, target: Target, groups: np.ndarray,
    clusters: np.ndarray, weights: np.ndarray, *, shuffled: bool, seed: int,
) -> list[tuple[dict[str, Any], Resampled | None]]:
    """Return what features [N, d] add to what is known, a row and the gain by itself; if
    `shuffled`, also what those of another combination's instances add, with the same penalty:
    reading nothing loses a little.

    groups, clusters  the combination of each training and held-out instance
    weights  float64 [replicate, held-out combination], the bootstrap's
    """
    about = {"given": known.given, "known": float(known.losses.mean())}
    if not train.shape[1]:
        nothing = dict.fromkeys(("gain", "low", "high", "with_features"), np.nan)
        return [(about | nothing | {"converged": True}, None)] * (2 if shuffled else 1)
    rng = np.random.default_rng([seed, 3])
    features = [(train, heldout)]
    if shuffled:
        features.append((train[rows_of_others(groups, rng)],
                         heldout[rows_of_others(clusters, rng)]))
    gained: list[tuple[dict[str, Any], Resampled | None]] = []
    penalties: Sequence[float] = PENALTIES
    for x, x_heldout in features:
        probe = _fit(np.concatenate([known.train, x], axis=1), target, groups, seed, penalties)
        penalties = [probe.penalty]
        losses = probe.log_losses(np.concatenate([known.heldout, x_heldout], axis=1),
                                  target.heldout)
        gain = Resampled.of_mean(known.losses - losses, clusters, weights)
        low, high = map(float, gain.interval())
        gained.append(({**about, "gain": gain.value, "low": low, "high": high,
                        "with_features": float(losses.mean()), "converged": probe.converged}, gain))
    return gained


def _fit(
    x: np.ndarray, target: Target, groups: np.ndarray, seed: int,
    penalties: Sequence[float] = PENALTIES,
) -> LogisticProbe:
    """Return a probe whose penalty is chosen by what it is judged by, its log loss."""
    return fit_probe(x, target.train, groups, multilabel=False, penalties=penalties,
                     selected_by="log_loss", seed=seed)
