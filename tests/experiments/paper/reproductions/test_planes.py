"""The numbers that pictures of clusters stand for: closed forms, and planes of known overlap."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from latentcode.experiments.paper.reproductions.planes import (
    LOGIC,
    SRAVEN,
    Label,
    early_less_late,
    interval,
    neighbours,
)


def plane(kind: np.ndarray, apart: float, **labels: object) -> pd.DataFrame:
    """Points whose classes lie `apart`, each a cloud of size 1."""
    noise = np.random.default_rng(0).normal(size=(len(kind), 2))
    return pd.DataFrame({"projection_x": kind * apart + noise[:, 0], "projection_y": noise[:, 1],
                         **labels})


def test_classes_of_equal_size() -> None:
    points = pd.DataFrame({"target": np.array([0.3, 0.1, 0.5, 0.2, 0.4, 0.0])})
    classes = Label("target", classes=3).classes_of(points)
    assert classes.tolist() == [1, 0, 2, 1, 2, 0]
    points = pd.DataFrame({"target": np.random.default_rng(0).random(200)})
    assert np.bincount(LOGIC["target"].classes_of(points)).tolist() == [40] * 5


def test_separate_clusters_agree_wholly_and_shuffled_labels_as_often_as_classes_are() -> None:
    function = np.repeat(np.arange(4), 40)
    found = plane(function, 100.0, combination=function.astype(str))
    means = neighbours(found, LOGIC["function"], function).mean()
    assert means["share"] == 1.0
    assert means["excess"] == pytest.approx(0.75, abs=0.02)


def test_functions_are_shuffled_among_instances_and_terms_among_functions() -> None:
    """Shuffled among functions, the function would agree as well as before."""
    function = np.repeat(np.arange(4), 40)
    found = plane(function, 100.0, combination=function.astype(str), rule=function.astype(str))
    assert neighbours(found, LOGIC["function"], function)["excess"].mean() > 0.7
    with np.errstate(invalid="ignore"):  # of 0 / 0, the reach of what shuffling gives wholly
        among_functions = neighbours(found, Label("combination"), function)
    assert among_functions["excess"].mean() == 0.0
    assert SRAVEN["rule"].among == LOGIC["term 1"].among == "combinations"


def test_interval_is_that_of_combinations() -> None:
    """Of six combinations three have 0.2 and three 0.6: the interval spans the means of most draws.
    """
    clusters = np.repeat(np.arange(6), 20)
    row = interval(np.where(clusters < 3, 0.2, 0.6), clusters)
    assert row["value"] == pytest.approx(0.4)
    assert 0.2 <= row["low"] < 0.3
    assert 0.5 < row["high"] <= 0.6


def test_target_over_rule_is_a_mean_over_layers() -> None:
    points = pd.DataFrame({"layer": [1, 1, 2, 2, 3, 3],
                           "target excess": [0.5, 0.1, 0.3, 0.1, 0.0, 0.0],
                           "rule excess": [0.2, 0.0, 0.2, 0.2, 0.1, 0.2]})
    assert early_less_late(points, 1).tolist() == pytest.approx([0.4, 0.3])
    assert early_less_late(points, 2).tolist() == pytest.approx([0.2, 0.15])


def synthetic(
    n_classes: int, n_clumps: int, apart: float, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return points [n, 2] in round clumps on a square lattice, their classes, and what is known.

    n_clumps  of each class, at places drawn at random
    apart     distance of neighbouring centres, in standard deviations of a clump

    The last is the reach of the best possible reader of places: the balanced accuracy of the class
    that is likeliest at a point, in place of the neighbours' vote.
    """
    total = n_classes * n_clumps
    side = int(np.ceil(np.sqrt(total)))
    places = np.array(list(product(range(side), repeat=2)))[:total] * apart
    of_place = rng.permutation(np.repeat(np.arange(n_classes), n_clumps))
    clump = rng.permutation(np.arange(n) % total)
    points = places[clump] + rng.normal(size=(n, 2))
    density = np.exp(-0.5 * np.square(points[:, None] - places).sum(axis=2))
    likely = (density @ np.eye(n_classes)[of_place]).argmax(axis=1)
    kind = of_place[clump]
    accuracy = np.mean([(likely[kind == c] == c).mean() for c in range(n_classes)])
    return points, kind, float((accuracy - 1 / n_classes) / (1 - 1 / n_classes))


def reached(points: np.ndarray, kind: np.ndarray, groups: np.ndarray) -> float:
    found = pd.DataFrame({"projection_x": points[:, 0], "projection_y": points[:, 1], "rule": kind})
    return float(neighbours(found, SRAVEN["rule"], groups)["reach"].mean())


def test_clumps_apart_are_told_wholly_and_one_clump_not_at_all() -> None:
    rng, kind = np.random.default_rng(0), np.repeat(np.arange(5), 80)
    noise, alone = rng.normal(size=(400, 2)), np.arange(400)
    assert reached(noise + 100.0 * kind[:, None], kind, alone) == pytest.approx(1.0)
    assert reached(noise, kind, alone) == pytest.approx(0.0, abs=0.06)


def test_every_class_weighs_the_same_however_common_it_is() -> None:
    """A rare class that lies among a common one is never told: no more than by chance."""
    rng, kind = np.random.default_rng(0), np.repeat([0, 1], [600, 40])
    assert reached(rng.normal(size=(640, 2)), kind, np.arange(640)) == pytest.approx(0.0, abs=0.04)


def test_clumps_of_combinations_alone_are_no_clumps_of_their_labels() -> None:
    """Every combination is a clump, with a label drawn at random: shuffling gives as much."""
    rng = np.random.default_rng(0)
    combination = np.repeat(np.arange(40), 20)
    points = 50.0 * rng.normal(size=(40, 2))[combination] + rng.normal(size=(800, 2))
    kind = rng.integers(4, size=40)[combination]
    found = pd.DataFrame({"projection_x": points[:, 0], "projection_y": points[:, 1], "rule": kind})
    means = neighbours(found, SRAVEN["rule"], combination).mean()
    assert means["share"] > 0.9
    assert means["excess"] < 0.75


@pytest.mark.parametrize(("n_classes", "n_clumps"), [(4, 1), (8, 4), (20, 1)])
def test_it_says_what_the_best_reader_reaches(n_classes: int, n_clumps: int) -> None:
    for apart in (1.0, 2.0, 4.0):
        rng = np.random.default_rng(0)
        points, kind, known = synthetic(n_classes, n_clumps, apart, 2_000, rng)
        assert reached(points, kind, np.arange(2_000)) == pytest.approx(known, abs=0.09)
