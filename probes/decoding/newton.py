"""Logistic regression by Newton's method, for problems with few parameters.

With a few hundred parameters the matrix of second derivatives fits the cache, and of many classes
that exclude each other (`fit_multinomial`) a part of the instances tells it well enough. The
gradient, which decides where the minimum is, is always that of all instances. Solvers that know the
curvature from products alone look at all of them several times as often.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

MOST_PARAMETERS = 512
"""Most weights and biases for which the matrix of second derivatives is worth its cost."""
MOST_FEATURES = 256
"""Most features for which that of a single yes or no (`fit_binary`) is: it is smaller, but is made
anew from all instances for every step of every class."""
PART = 4_096
"""Fewest instances that are asked for the curvature, where there are more."""
BLOCK = 1_024
"""Instances that are looked at together, so that what is computed from them stays in the cache."""
SLOW = 0.5
"""A step after which less than this share of the gradient is left is good, whatever the loss says;
one that leaves more asks for better curvature, where that is of a part."""
HALVINGS = 30
"""Most halvings of a step that overshoots."""


def fit_multinomial(
    z: np.ndarray,
    classes: np.ndarray,
    n_classes: int,
    penalty: float,
    *,
    tolerance: float,
    max_iterations: int,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, bool]:
    """Return argmin_W,b of -mean log softmax(W z + b)_class + penalty / 2 |W|^2.

    z        float64 [N, d]
    classes  int [N], 0 to n_classes - 1
    penalty  above 0
    tolerance  largest entry of the gradient at which the fit is done
    max_iterations  most steps on all instances with the curvature of one part of them
    start    [n_classes, d + 1] to begin at, by default zero

    Returns [W, b], float64 [n_classes, d + 1], the biases with mean 0, and whether the gradient
    of all instances is below the tolerance there.
    """
    # The last column makes the bias a weight, one without a penalty.
    x = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    whole = _Problem(x, classes, penalty)
    theta = np.zeros((n_classes, x.shape[1])) if start is None else start.copy()
    theta[:, -1] -= theta[:, -1].mean()
    stride = max(1, len(x) // PART)
    part = whole.every(stride)
    if stride > 1:
        theta, _ = part.minimise(theta, part, tolerance, max_iterations)
    while True:
        theta, converged = whole.minimise(theta, part, tolerance, max_iterations)
        if converged or stride == 1:
            return theta, converged
        stride = max(1, stride // 4)
        part = whole.every(stride)


def fit_binary(
    z: np.ndarray,
    y: np.ndarray,
    penalty: float,
    *,
    balanced: bool,
    tolerance: float,
    max_iterations: int,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, bool]:
    """Return, for each of several classes, argmin_w,b of the mean log loss + penalty / 2 |w|^2.

    The log loss is -log sigmoid(s) where y and -log sigmoid(-s) where not, s = w z + b.

    z         float64 [N, d]
    y         bool [N, class], both True and False in each column
    penalty   above 0
    balanced  weigh instances by N / (2 n), n as many as have the same y, so that yes and no
              weigh the same
    tolerance  largest entry of the gradient at which the fit of a class is done
    max_iterations  most steps
    start     [class, d + 1] to begin at, by default zero

    Returns [w, b], float64 [class, d + 1], and whether all gradients are below the tolerance there.
    All classes are fitted at once: each is a problem of its own, but their scores are one product.
    """
    x = np.concatenate([z, np.ones((len(z), 1))], axis=1)
    yes = np.ascontiguousarray(y.T)
    share = yes.mean(axis=1, keepdims=True)
    weights = np.where(yes, 0.5 / share, 0.5 / (1.0 - share)) if balanced else np.ones(yes.shape)
    ridge = np.full(x.shape[1], penalty)
    ridge[-1] = 0.0

    def look(theta: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the loss [class] and its gradient [class, d + 1] of some classes."""
        loss, gradient = np.zeros(len(of)), np.zeros_like(theta)
        for first in range(0, len(x), BLOCK):
            here = slice(first, first + BLOCK)
            scores = theta @ x[here].T
            own, weight = yes[of, here], weights[of, here]
            loss += (weight * np.logaddexp(0.0, np.where(own, -scores, scores))).sum(axis=1)
            gradient += (weight * (expit(scores) - own)) @ x[here]
        return (loss / len(x) + np.square(theta) @ ridge / 2, gradient / len(x) + theta * ridge)

    def curvature(theta: np.ndarray, of: np.ndarray) -> np.ndarray:
        """Return the second derivatives [class, d + 1, d + 1] of some classes."""
        second = np.zeros((len(of), len(ridge), len(ridge)))
        for first in range(0, len(x), BLOCK):
            here = slice(first, first + BLOCK)
            p = expit(theta @ x[here].T)
            p *= (1.0 - p) * weights[of, here]
            for one, weight in zip(second, p, strict=True):
                one += (x[here].T * weight) @ x[here]
        second /= len(x)
        # A class whose scores are all large has next to no curvature left, least of its bias.
        second[:, np.arange(len(ridge)), np.arange(len(ridge))] += np.maximum(ridge, 1e-10)
        return second

    theta = np.zeros((len(yes), x.shape[1])) if start is None else start.copy()
    going = np.arange(len(yes))
    loss, gradient = look(theta, going)
    for _ in range(max_iterations):
        size = np.abs(gradient).max(axis=1)
        going = going[size[going] > tolerance]
        if not len(going):
            break
        step = np.linalg.solve(curvature(theta[going], going), gradient[going, :, None])[..., 0]
        left = np.arange(len(going))
        for halving in range(HALVINGS):
            of = going[left]
            moved = theta[of] - step[left] / 2**halving
            loss_there, gradient_there = look(moved, of)
            # The losses of the last steps differ by less than rounding; gradients do not.
            better = ((loss_there < loss[of])
                      | (np.abs(gradient_there).max(axis=1) < SLOW * size[of]))
            of = of[better]
            theta[of], loss[of], gradient[of] = (
                moved[better], loss_there[better], gradient_there[better])
            left = left[~better]
            if not len(left):
                break
        going = np.delete(going, left)  # where no step is better, nothing will be
    return theta, bool((np.abs(gradient) <= tolerance).all())


class _Problem:
    """The loss of some instances and its first and second derivatives, block after block.

    Probabilities lie in memory as [class, instance]: sums over classes then run along whole rows.
    """

    def __init__(self, x: np.ndarray, classes: np.ndarray, penalty: float) -> None:
        self.x, self.classes, self.penalty = x, classes, penalty

    def every(self, stride: int) -> _Problem:
        """Return the problem of every stride-th instance; itself for 1."""
        if stride <= 1:
            return self
        return _Problem(np.ascontiguousarray(self.x[::stride]), self.classes[::stride],
                        self.penalty)

    def minimise(
        self, theta: np.ndarray, curvature: _Problem, tolerance: float, max_iterations: int
    ) -> tuple[np.ndarray, bool]:
        """Step by the inverse curvature until the gradient is below the tolerance.

        The curvature of another problem is that at the start, and a step for which it is too
        rough is the last.
        """
        loss, gradient = self.loss_and_gradient(theta)
        factor: Any = None
        for _ in range(max_iterations):
            size = np.abs(gradient).max()
            if size <= tolerance:
                return theta, True
            if factor is None or curvature is self:
                factor = curvature.factor(theta)
            step = cho_solve(factor, gradient.ravel()).reshape(theta.shape)
            for halving in range(HALVINGS):
                moved = theta - step / 2**halving
                loss_there, gradient_there = self.loss_and_gradient(moved)
                # The losses of the last steps differ by less than rounding; gradients do not.
                if loss_there < loss or np.abs(gradient_there).max() < SLOW * size:
                    break
            else:
                return theta, False
            theta, loss, gradient = moved, loss_there, gradient_there
            if curvature is not self and np.abs(gradient).max() > SLOW * size:
                break
        return theta, bool(np.abs(gradient).max() <= tolerance)

    def loss_and_gradient(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the penalised mean loss and its gradient, shaped as theta."""
        loss, gradient = 0.0, np.zeros_like(theta)
        for first in range(0, len(self.x), BLOCK):
            x, classes = self.x[first:first + BLOCK], self.classes[first:first + BLOCK]
            own = classes, np.arange(len(x))
            scores = theta @ x.T
            scores -= scores.max(axis=0)
            loss -= scores[own].sum()
            np.exp(scores, out=scores)
            total = scores.sum(axis=0)
            loss += np.log(total).sum()
            scores /= total
            scores[own] -= 1.0
            gradient += scores @ x
        penalised = theta.copy()
        penalised[:, -1] = 0.0
        return (loss / len(self.x) + self.penalty / 2 * float(np.square(penalised).sum()),
                gradient / len(self.x) + self.penalty * penalised)

    def factor(self, theta: np.ndarray) -> Any:
        """Return the Cholesky factor of the second derivatives at theta.

        sum_n (diag(p_n) - p_n p_n^T) (x) x_n x_n^T / N + penalty. The loss does not change when
        all biases move together, so that direction is given a curvature of its own.
        """
        n_classes, d = theta.shape
        second = np.zeros((n_classes * d, n_classes * d))
        diagonal = np.zeros((n_classes * d, d))
        for first in range(0, len(self.x), BLOCK):
            x = self.x[first:first + BLOCK]
            p = theta @ x.T
            p -= p.max(axis=0)
            np.exp(p, out=p)
            p /= p.sum(axis=0)
            weighted = (p[:, None] * x.T).reshape(n_classes * d, -1)
            diagonal += weighted @ x
            second -= weighted @ weighted.T
        blocks = second.reshape(n_classes, d, n_classes, d)
        same = np.arange(n_classes)
        blocks[same, :, same, :] += diagonal.reshape(n_classes, d, d)
        second /= len(self.x)
        blocks[:, -1, :, -1] += 1.0
        # The bias of a class that is nearly never given has next to no curvature of its own.
        ridge = np.full((n_classes, d), self.penalty)
        ridge[:, -1] = 1e-10
        second[np.diag_indices_from(second)] += ridge.ravel()
        return cho_factor(second, lower=True, overwrite_a=True, check_finite=False)
