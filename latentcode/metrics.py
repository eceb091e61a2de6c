"""Means over instances with their standard errors, and the classes that an answer can fall into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Metric:
    """A mean over n instances and its standard error (NaN for n < 2)."""

    mean: float
    se: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} +- {self.se:.4f}"


def is_by_constituent(name: str) -> bool:
    """Is this the metric of one rule or term alone, such as `feature_accuracy[sum]`?"""
    return name.endswith("]")


def is_loss(name: str) -> bool:
    """Is this a loss, or the perplexity, whose logarithm is one?"""
    return "loss" in name or name == "perplexity"


def mean_metric(values: np.ndarray) -> Metric:
    """Return mean(x) and sd(x) / sqrt(n) of x [n], accumulated in float64."""
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    se = float(x.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Metric(float(x.mean()) if n else float("nan"), se, n)


def ratio_metric(numerator: np.ndarray, denominator: np.ndarray) -> Metric:
    """Return 1 - sum(a) / sum(b) with its standard error by the delta method.

    With r = sum(a) / sum(b) the residuals e_i = a_i - r b_i have mean zero, and
    se = sqrt(n / (n - 1) * sum e_i^2) / |sum(b)|. NaN where sum(b) is 0.
    """
    a = np.asarray(numerator, dtype=np.float64)
    b = np.asarray(denominator, dtype=np.float64)
    n = len(a)
    if b.sum() == 0:
        return Metric(float("nan"), float("nan"), n)
    ratio = a.sum() / b.sum()
    residual = a - ratio * b
    se = (np.sqrt(n / (n - 1) * np.square(residual).sum()) / abs(b.sum())
          if n > 1 else float("nan"))
    return Metric(float(1.0 - ratio), float(se), n)


def share_metric(part: np.ndarray, whole: np.ndarray) -> Metric:
    """Return sum(a) / sum(b) of answers a that are among answers b, both bool [instances, ...].

    n is the number of answers, sum(b). The standard error is that of `ratio_metric`: instances
    are independent, the answers of one instance are not. NaN where nothing is counted.
    """
    b = whole.sum(axis=1)
    a, b = part.sum(axis=1)[b > 0], b[b > 0]
    others = ratio_metric(b - a, b)
    return Metric(others.mean, others.se, int(b.sum()))


CLASSES: dict[str, str] = {
    "base": "A(x), the base's own answer",
    "operation": "B(x), the source's operation on the base's operands",
    "operands": "A(x'), the base's operation on the source's operands",
    "answer": "B(x'), the source's own answer: its operation on its operands",
    "else": "none of these",
}
"""Whose answer an answer is, in the order of `MinimalPairs.candidates`.

Of interchange patches the rates of `operation`, `operands` and `answer` are the interchange
intervention accuracies (IIA) of these three variables.
"""

IN_WORDS: dict[str, str] = {
    "base": "the problem's own answer",
    "operation": "the source's operation on this problem's operands",
    "operands": "this problem's operation on the source's operands",
    "answer": "the source's own answer",
    "else": "none of these",
}
"""The same for those who know no letters: on pages and in sentences."""
