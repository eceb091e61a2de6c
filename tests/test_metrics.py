"""Are means and ratios those of numpy, and standard errors those of resampling?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentcode.metrics import Metric, mean_metric, ratio_metric, share_metric

property_test = settings(max_examples=100)
values = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50)


def jackknife(numerator: np.ndarray, denominator: np.ndarray) -> float:
    """Standard error of 1 - sum(a) / sum(b) by leaving each instance out in turn."""
    n = len(numerator)
    without = 1 - (numerator.sum() - numerator) / (denominator.sum() - denominator)
    return math.sqrt((n - 1) / n * np.square(without - without.mean()).sum())


@property_test
@given(values)
def test_mean_and_standard_error_are_numpys(x: list[float]) -> None:
    metric = mean_metric(np.array(x))
    assert metric.n == len(x)
    assert metric.mean == pytest.approx(np.mean(x), rel=1e-12, abs=1e-9)
    assert metric.se == pytest.approx(np.std(x, ddof=1) / np.sqrt(len(x)), rel=1e-12, abs=1e-9)


def test_float32_values_are_accumulated_in_float64() -> None:
    x = np.full(2**20, 0.1, dtype=np.float32)
    x[0] = 1e6
    assert mean_metric(x).mean == pytest.approx(float(x.astype(np.float64).mean()), rel=1e-15)
    half = np.full(2**20, 0.5, dtype=np.float32)
    wanted = 1 - x.astype(np.float64).sum() / (0.5 * 2**20)
    assert ratio_metric(x, half).mean == pytest.approx(float(wanted), rel=1e-15)


@property_test
@given(st.integers(0, 1000), st.integers(2, 60))
def test_ratio_is_that_of_the_sums(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.random(n), rng.random(n) + 0.1
    metric = ratio_metric(a, b)
    assert metric.n == n
    assert metric.mean == pytest.approx(1 - a.sum() / b.sum(), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_standard_error_of_a_ratio_agrees_with_the_jackknife(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = rng.gamma(4.0, size=3000)
    a = 0.4 * b + 0.2 * rng.gamma(2.0, size=3000)
    assert ratio_metric(a, b).se == pytest.approx(jackknife(a, b), rel=0.01)
    # Treating the denominator as a constant would miss the correlation by far.
    naive = a.std(ddof=1) / math.sqrt(3000) / b.mean()
    assert ratio_metric(a, b).se < 0.9 * naive


def test_a_constant_denominator_gives_the_error_of_the_mean() -> None:
    a = np.random.default_rng(0).random(50)
    metric, mean = ratio_metric(a, np.full(50, 2.0)), mean_metric(a)
    assert metric.mean == pytest.approx(1 - mean.mean / 2)
    assert metric.se == pytest.approx(mean.se / 2)


@pytest.mark.parametrize(("metric", "mean", "n"), [
    (mean_metric(np.array([3.0])), 3.0, 1),
    (ratio_metric(np.array([1.0]), np.array([4.0])), 0.75, 1),
    (mean_metric(np.array([])), math.nan, 0),
    (ratio_metric(np.array([]), np.array([])), math.nan, 0),
    (ratio_metric(np.array([1.0, 2.0]), np.zeros(2)), math.nan, 2)])
def test_too_few_instances_have_no_standard_error_or_no_mean(
    metric: Metric, mean: float, n: int
) -> None:
    assert (metric.mean, metric.n) == (pytest.approx(mean, nan_ok=True), n)
    assert math.isnan(metric.se)


def test_a_metric_reads_well() -> None:
    assert str(Metric(0.123456, 0.00078, 16)) == "0.1235 +- 0.0008"


def clustered(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return right and counted answers [n, 4]; those of one instance tend to be right together."""
    counted = rng.random((n, 4)) < rng.choice([0.1, 0.8], size=(n, 1))
    right = rng.random((n, 4)) < rng.choice([0.2, 0.9], size=(n, 1))
    return right & counted, counted


def test_the_standard_error_of_a_share_is_that_of_resampled_instances() -> None:
    rng = np.random.default_rng(0)
    part, whole = clustered(800, rng)
    metric = share_metric(part, whole)
    assert (metric.mean, metric.n) == (pytest.approx(part.sum() / whole.sum()), whole.sum())
    drawn = rng.integers(800, size=(4000, 800))
    shares = part.sum(1)[drawn].sum(1) / whole.sum(1)[drawn].sum(1)
    assert metric.se == pytest.approx(shares.std(), rel=0.05)
    # Answers of one instance are not independent.
    assert metric.se > 1.3 * math.sqrt(metric.mean * (1 - metric.mean) / metric.n)


def test_a_share_of_one_answer_each_is_a_mean() -> None:
    rng = np.random.default_rng(1)
    part, whole = rng.random((50, 3)) < 0.4, np.zeros((50, 3), dtype=bool)
    whole[:40, 1] = True
    wanted = mean_metric(part[:40, 1])
    metric = share_metric(part & whole, whole)
    assert (metric.mean, metric.se, metric.n) == pytest.approx((wanted.mean, wanted.se, 40))


def test_too_few_answers_have_no_share() -> None:
    whole = np.zeros((5, 2), dtype=bool)
    nothing = share_metric(whole, whole)
    assert math.isnan(nothing.mean)
    assert nothing.n == 0
    whole[3] = True
    one = share_metric(whole, whole)  # two answers of one instance
    assert (one.mean, one.n) == (1.0, 2)
    assert math.isnan(one.se)
