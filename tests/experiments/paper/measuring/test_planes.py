"""Tests of the numbers that pictures of clusters stand for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from latentcode.config.presets import preset
from latentcode.experiments.paper.measuring.planes import (
    LOGIC,
    SRAVEN,
    Label,
    Planes,
    agreement,
    target_over_rule,
)
from tests.helpers.paper_runs import MadeUpRun

RUN = MadeUpRun(preset("smoke", "sraven"), "a", {})


def plane(kind: np.ndarray, apart: float, **labels: object) -> pd.DataFrame:
    """Points whose classes lie `apart`, each a cloud of size 1."""
    noise = np.random.default_rng(0).normal(size=(len(kind), 2))
    return pd.DataFrame({"projection_x": kind * apart + noise[:, 0], "projection_y": noise[:, 1],
                         **labels})


def test_classes_of_equal_size() -> None:
    points = pd.DataFrame({"target": np.array([0.3, 0.1, 0.5, 0.2, 0.4, 0.0])})
    classes = Label("target", "target", classes=3).of(points)
    assert classes.tolist() == [1, 0, 2, 1, 2, 0]


def test_target_of_fuzzy_logic_comes_in_five_classes_that_are_equally_common() -> None:
    points = pd.DataFrame({"target": np.random.default_rng(0).random(200)})
    assert np.bincount(LOGIC["target"].of(points)).tolist() == [40] * 5


def test_separate_clusters_agree_wholly_and_shuffled_labels_as_often_as_classes_are() -> None:
    function = np.repeat(np.arange(4), 40)
    found = plane(function, 100.0, combination=function.astype(str))
    own, shuffled = agreement(found, LOGIC["function"], function)
    assert own.mean() == 1.0
    assert shuffled.mean() == pytest.approx(0.25, abs=0.02)


def test_functions_are_shuffled_among_instances_and_terms_among_functions() -> None:
    """Shuffled among functions, the function would agree as well as before."""
    function = np.repeat(np.arange(4), 40)
    found = plane(function, 100.0, combination=function.astype(str), rule=function.astype(str))
    assert agreement(found, LOGIC["function"], function)[1].mean() < 0.3
    _, among_functions = agreement(found, Label("function", "combination"), function)
    assert among_functions.mean() == 1.0
    assert SRAVEN["rule"].among == LOGIC["term 1"].among == "combinations"


def test_interval_is_that_of_combinations() -> None:
    """Twenty points of each of two combinations: the interval spans both of their means."""
    clusters = np.repeat([0, 1], 20)
    one = Planes("kind=hyla", RUN, pd.DataFrame(), clusters, {}, {})  # type: ignore[arg-type]
    row = one.row(np.where(clusters == 0, 0.2, 0.6))
    assert (row["value"], row["member"]) == (pytest.approx(0.4), "kind=hyla")
    assert (row["low"], row["high"]) == (pytest.approx(0.2), pytest.approx(0.6))


def test_target_over_rule_is_a_mean_over_layers() -> None:
    excess = {1: {"target": np.array([0.5, 0.1]), "rule": np.array([0.2, 0.0])},
              2: {"target": np.array([0.3, 0.1]), "rule": np.array([0.2, 0.2])}}
    one = Planes("", RUN, pd.DataFrame(), np.array([0, 1]), excess, {})  # type: ignore[arg-type]
    assert target_over_rule(one, [1]).tolist() == pytest.approx([0.3, 0.1])
    assert target_over_rule(one, [1, 2]).tolist() == pytest.approx([0.2, 0.0])
