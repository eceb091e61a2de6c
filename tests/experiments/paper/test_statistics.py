"""Intervals and exact tests against scipy, hand-made examples and simulation."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from latentcode.experiments.paper.verdicts import (
    Difference,
    exchange_labels,
    mean_interval,
    narrowest_half,
    welch,
)


def by_split(values: list[float], splits: list[int] | None = None) -> pd.Series:
    return pd.Series(values, index=splits or range(len(values)), dtype=float)


def of_samples(a: np.ndarray, b: np.ndarray) -> Difference:
    (m, e, n), (m_, e_, n_) = ((x.mean(-1), stats.sem(x, axis=-1), x.shape[-1]) for x in (a, b))
    return welch(m, e, n, m_, e_, n_)


def test_welch_without_an_error_of_ours() -> None:
    # df = 2, t = 4.303.
    assert welch(5.0, 0.0, 3, 4.0, 1.0, 3).high == pytest.approx(1.0 + 4.3027, rel=1e-4)


def test_welch_errs_as_often_as_the_head_of_the_claims_says() -> None:
    text = files("latentcode.experiments.paper").joinpath("claims.yaml").read_text("utf-8")
    head = " ".join(text[:text.index("\n\n")].replace("\n#", " ").split())
    said = re.search(r"Welch's test errs in ([\d.]+) to ([\d.]+) %, by simulation", head)
    assert said is not None
    least, most = (float(number) / 100 for number in said.groups())
    rng = np.random.default_rng(0)
    published = rng.standard_normal((40_000, 3))
    rates = [float((of_samples(spread * rng.standard_normal((40_000, n)), published).p < 0.05)
                   .mean()) for n in (3, 4) for spread in (0.2, 0.5, 1.0, 2.0, 5.0)]
    # Two standard deviations of the simulation.
    assert min(rates) > least - 0.002
    assert max(rates) < most + 0.0025
    assert min(rates) < 0.038
    assert max(rates) > 0.057


def test_narrowest_interval() -> None:
    assert mean_interval(by_split([0.5, 0.5, 0.5])) == (0.5, 0.5, 0.5)
    assert narrowest_half(3, 3) == pytest.approx(3.54, abs=0.005)
    assert narrowest_half(float("inf"), 4096) == pytest.approx(stats.t.ppf(0.975, 4095))
    assert narrowest_half(6, 3) < narrowest_half(3, 3)


def test_three_against_three_reach_one_of_twenty() -> None:
    higher, lower = by_split([0.9, 0.8, 0.7]), by_split([0.3, 0.2, 0.4])
    apart = exchange_labels([(higher, lower)])
    assert apart == (pytest.approx(0.5), 1, 20, 20)
    assert exchange_labels([(lower, higher)]) == (pytest.approx(-0.5), 20, 1, 20)
    # One overlap: the observed exchange and that of 0.7 with 0.75.
    assert exchange_labels([(higher, by_split([0.3, 0.2, 0.75]))])[1:] == (2, 19, 20)


def test_two_against_two_in_three_splits_reach_one_of_216() -> None:
    splits = [0, 0, 1, 1, 2, 2]
    # Splits differ by more than the sides do: exchanged among all runs, labels would show less.
    higher = by_split([0.12, 0.13, 0.52, 0.53, 0.92, 0.93], splits)
    lower = by_split([0.10, 0.11, 0.50, 0.51, 0.90, 0.91], splits)
    assert exchange_labels([(higher, lower)])[1:] == (1, 216, 216)
    # With one run of a side in one split, all runs are exchanged: C(11, 5).
    assert exchange_labels([(higher, lower.iloc[:5])]).total == 462
    # And with a split that only one side has.
    assert exchange_labels([(higher, lower.set_axis([0, 0, 1, 1, 3, 3]))]).total == 924


def test_splits_of_unequal_size_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(2)
    higher = by_split(rng.normal(0.3, 1.0, 7).tolist(), [0, 0, 0, 0, 0, 1, 1])
    lower = by_split(rng.normal(0.0, 1.0, 7).tolist(), [0, 0, 1, 1, 1, 1, 1])
    # Runs of split 0 are 0 to 6, those of split 1 are 7 to 13.
    both = np.concatenate([higher[:5], lower[:2], higher[5:], lower[2:]])
    differences = []
    for first, second in product(combinations(range(7), 5), combinations(range(7, 14), 2)):
        taken = np.isin(np.arange(14), first + second)
        differences.append(both[taken].mean() - both[~taken].mean())
    found = exchange_labels([(higher, lower)])
    assert found.difference == pytest.approx(differences[0])
    assert found.above == np.sum(np.array(differences) >= differences[0] - 1e-12)
    assert found.total == len(differences) == 21 * 21


def test_several_pairs_are_one_test_of_their_mean() -> None:
    up = by_split([0.6, 0.7, 0.8]), by_split([0.0, 0.1, 0.2])
    down = by_split([0.4, 0.5, 0.6]), by_split([0.45, 0.55, 0.65])
    found = exchange_labels([up, down])
    assert found.difference == pytest.approx((0.6 - 0.05) / 2)
    assert found.total == 20 * 20
    # Labels stay within their pair. The first is apart too far for the second to make up for it,
    # so that those exchanges of the second count whose sum is at least as large.
    sums = [sum(taken) for taken in combinations([0.4, 0.5, 0.6, 0.45, 0.55, 0.65], 3)]
    in_second = sum(value >= 1.5 - 1e-9 for value in sums)
    assert found.above == in_second
    assert exchange_labels([up, up])[1:] == (1, 400, 400)


def test_equal_values_tell_nothing() -> None:
    same = by_split([0.1 + 0.2, 0.3, 0.3])
    assert exchange_labels([(same, same)])[1:] == (20, 20, 20)


def test_nine_strata_are_counted_in_halves() -> None:
    splits = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    pair = by_split(list(np.arange(1.0, 10.0)), splits), by_split(list(-np.arange(9.0)), splits)
    assert exchange_labels([pair, pair])[1:] == (1, 20**6, 20**6)
