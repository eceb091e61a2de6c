"""Are shuffled labels a null: exchangeable, with the same classes, combinations respected?"""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import latentcode as lc
from latentcode.probes.alignment import cka
from latentcode.probes.common.statistics import (
    LEAST_ARRANGEMENTS,
    Resampled,
    has_null,
    rows_of_others,
    shuffled_classes,
    shuffled_labels,
)
from latentcode.tasks.pairs import Pair

SHARES = {"balanced": [1 / 3] * 3, "rare": [0.9, 0.05, 0.05], "unequal": [0.6, 0.3, 0.1]}
SEEDS = 200


def labels_by_size(kind: np.ndarray, groups: np.ndarray) -> Counter[tuple[int, ...]]:
    return Counter(tuple(sorted(kind[groups == group].tolist())) for group in np.unique(groups))


@given(seed=st.integers(0, 10_000), n=st.integers(1, 60), n_groups=st.integers(1, 9),
       n_classes=st.integers(1, 4))
def test_the_labels_of_combinations_stay_together(
    seed: int, n: int, n_groups: int, n_classes: int
) -> None:
    rng = np.random.default_rng(seed)
    kind, groups = rng.integers(n_classes, size=n), rng.integers(n_groups, size=n)
    shuffles = shuffled_classes(kind, groups, rng, 3)
    assert len(shuffles) == (3 if has_null(kind, groups) else 0)
    for shuffled in shuffles:
        assert labels_by_size(shuffled, groups) == labels_by_size(kind, groups)


@given(seed=st.integers(0, 10_000), n_groups=st.integers(1, 30))
def test_a_label_of_combinations_moves_with_them_whatever_their_size(
    seed: int, n_groups: int
) -> None:
    rng = np.random.default_rng(seed)
    of_group = rng.integers(3, size=n_groups)
    groups = np.repeat(np.arange(n_groups), rng.integers(1, 6, n_groups))
    for shuffled in shuffled_classes(of_group[groups], groups, rng, 2):
        moved = [set(shuffled[groups == group].tolist()) for group in range(n_groups)]
        assert all(len(classes) == 1 for classes in moved)
        assert sorted(min(classes) for classes in moved) == sorted(of_group.tolist())


@pytest.mark.parametrize("labels", [
    "aab|abb", "aa|bb|bb|a", "aaab", "ab|ab|b|b", "a|b|b", "aa|b", "aabbc", "abc|abc", "a|a|b|b|c"])
def test_a_null_has_twenty_distinct_arrangements(labels: str) -> None:
    """All arrangements that the rules allow are written down."""
    words = labels.split("|")
    groups = np.repeat(np.arange(len(words)), [len(word) for word in words])
    constant = all(len(set(word)) == 1 for word in words)
    allowed: set[str] = set()
    for order in permutations(words):
        if constant:
            allowed.add("".join(new[0] * len(old) for new, old in zip(order, words, strict=True)))
        elif all(len(new) == len(old) for new, old in zip(order, words, strict=True)):
            parts = [sorted({"".join(p) for p in permutations(word)}) for word in order]
            allowed.update("".join(chosen) for chosen in product(*parts))
    kind = np.array([*"".join(words)])
    assert has_null(kind, groups) == (len(allowed) >= LEAST_ARRANGEMENTS)
    drawn = shuffled_classes(kind, groups, np.random.default_rng(0), 50 * len(allowed))
    assert {"".join(row) for row in drawn} == (allowed if has_null(kind, groups) else set())


@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=9))
def test_a_combination_is_read_at_one_other_combination(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = rows_of_others(groups, rng)
    taken = {(mine, other) for mine, other in zip(groups, groups[rows], strict=True)}
    assert len(taken) == len({other for _, other in taken}) == len(sizes)
    assert len(sizes) == 1 or all(mine != other for mine, other in taken)
    assert all(len(set(rows[groups == g])) == min(sizes[g], sizes[o]) for g, o in taken)


def test_what_varies_with_combinations_alone_is_no_nearer_to_itself_than_its_control() -> None:
    """The similarity of unrelated codes, which instances of a combination share."""
    means = np.random.default_rng(0).normal(size=(2, 200, 6, 5))
    a, b = np.repeat(means, 10, axis=2)
    groups = np.repeat(np.arange(6), 10)
    unrelated, control = (np.array([cka(x, y[rows])
                                    for x, y, rows in zip(a, b, order, strict=True)])
                          for order in ([np.arange(60)] * 200, [
                              rows_of_others(groups, np.random.default_rng(seed))
                              for seed in range(200)]))
    assert unrelated.mean() > 0.4
    assert abs(unrelated.mean() - control.mean()) < 3 * (unrelated - control).std() / 200**0.5


def test_indicators_are_shuffled_as_their_rows_are() -> None:
    y = np.eye(4, dtype=bool)[np.repeat(np.arange(12) % 4, 5)]
    groups = np.repeat(np.arange(12), 5)
    first, again, other = (shuffled_labels(y, groups, np.random.default_rng(s), 2)
                           for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (first[0] != first[1]).any()
    assert (first.sum(axis=1) == y.sum(axis=0)).all()


def noise(seed: int, split: int, shares: list[float], constant: bool) -> lc.LatentCodes:
    """Codes that tell nothing, in combinations of four to eight instances."""
    rng = np.random.default_rng([seed, split])
    combination = np.repeat(np.arange(16), rng.integers(4, 9, 16))
    of_combination = rng.choice(3, 16, p=shares)
    y = of_combination[combination] if constant else rng.choice(3, len(combination), p=shares)
    y[np.flatnonzero(np.diff(combination, prepend=-1))[:3]] = [0, 1, 2]
    scores = rng.normal(size=(len(y), 1, 1, 3)).astype(np.float32)
    labels = pd.DataFrame({"y": [f"class {value}" for value in y],
                           "combination": [f"{split} {number}" for number in combination]})
    return lc.LatentCodes(scores, labels, (Pair("q->k", "", None),), (0,),
                          {"run": f"{seed} {split}"})


def spread(points: lc.Points) -> np.ndarray:
    """How much nearer is a point to the mean of its class than to that of all?"""
    means = np.stack([points.x[points.y == c].mean(axis=0) if (points.y == c).any()
                      else points.x.mean(axis=0) for c in range(len(points.classes))])
    return np.square(points.x - points.x.mean(axis=0)).sum(axis=1) - np.square(
        points.x - means[points.y]).sum(axis=1)


def contrast(asked: str, train: lc.LatentCodes, heldout: lc.LatentCodes, seed: int) -> pd.DataFrame:
    how = {"controls": False, "n_bootstrap": 200, "seed": seed}
    if asked == "decode":
        return lc.decode(train, heldout, ["y"], n_shuffles=3, **how).contrasts.table
    if asked == "registered, fitted":
        return lc.knn(train, heldout, labels=["y"], n_shuffles=5, **how).contrasts.table
    if asked == "knn_purity":
        table = lc.knn_purity(train, labels=["y"], **how).contrasts.table
        return table.assign(quantity=table["among"])
    if asked == "similarity":
        table = lc.similarity(train, label="y", **how).contrasts.table
        return table[(table["centring"] == "centred") & (table["features"] == "code")].assign(
            quantity=table["row"] + table["column"])
    registered = lc.register_probe("spread", replace=True)(spread)
    return registered(train, labels=["y"], **how).contrasts.table


@pytest.mark.slow
@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("asked", [
    "decode", "registered, fitted", "registered", "knn_purity", "similarity"])
@pytest.mark.usefixtures("own_names")
def test_noise_is_above_shuffled_labels_as_seldom_as_it_may(asked: str, shares: str) -> None:
    """The lower end of a 95 % interval is above 0 in at most 2.5 % of the seeds."""
    above: Counter[str] = Counter()
    for seed in range(SEEDS):
        train, heldout = (noise(seed, split, SHARES[shares], seed % 2 == 0) for split in (0, 1))
        table = contrast(asked, train, heldout, seed)
        table = table[table["against"] == "shuffled"]
        above.update(table.loc[table["low"] > 0, "quantity"])
        above.update(dict.fromkeys(table["quantity"], 0))
    most = int(binom.ppf(0.999, SEEDS, 0.025))
    assert above
    assert max(above.values()) <= most, above


def test_a_signal_is_above_shuffled_labels() -> None:
    train, heldout = (noise(0, split, SHARES["unequal"], constant=False) for split in (0, 1))
    for codes in (train, heldout):
        codes.scores[:, 0, 0, 0] += 4.0 * (codes.labels["y"] == "class 0")
    table = lc.decode(train, heldout, ["y"], controls=False).contrasts.table
    low = table.query("against == 'shuffled' and quantity == 'accuracy'")["low"].item()
    assert low > 0.0


def test_too_few_arrangements_are_no_null() -> None:
    """One document is all that has the class: three arrangements."""
    codes = noise(0, 0, SHARES["balanced"], constant=False)
    codes.labels["y"] = np.where(codes.labels["combination"] == "0 1", "rare", "common")
    few = codes[codes.labels["combination"].isin(["0 0", "0 1", "0 2"]).to_numpy()]
    result = lc.similarity(few, label="y", controls=False)
    assert "shuffled" not in set(result.contrasts.table["against"])
    assert any("Label y: shuffled labels are no control" in note for note in result.caveats)


def test_an_interval_spans_shuffles_beyond_the_problems() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=1_000)

    def scores(values: list[float]) -> list[Resampled]:
        return [Resampled(value, value + 0.01 * weights, 100, 50) for value in values]

    true, = scores([0.9])
    same = (true - Resampled.of_shuffles(scores([0.5] * 10), rng)).row()
    apart = Resampled.of_shuffles(scores([0.3, 0.4, 0.5, 0.6, 0.7]), rng)
    assert same["value"] == pytest.approx((true - apart).row()["value"]) == pytest.approx(0.4)
    assert same["high"] - same["low"] < 0.06
    assert (true - apart).row()["high"] - (true - apart).row()["low"] > 0.6
    assert 0.25 < apart.row()["low"] < 0.35  # that of one of them
    assert 0.65 < apart.row()["high"] < 0.75
    assert np.isnan((true - Resampled.of_shuffles(scores([0.5]), rng)).row()["low"])
