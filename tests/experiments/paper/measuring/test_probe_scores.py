"""Tests of differences between probes on the same held-out instances."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from latentcode.experiments.paper.measuring.over_runs import over_runs, per_kind
from latentcode.experiments.paper.measuring.probe_scores import (
    ALL,
    _Scores,
    against,
    best_layer,
    first_varying,
)
from latentcode.experiments.paper.measuring.score_figures import of_varying
from latentcode.probes.common.bootstrap import balanced_accuracy, count_by_cluster, resample

CLUSTERS = np.repeat(np.arange(10), 20)
TRUTH = np.eye(2, dtype=bool)[np.arange(200) % 2]


def scores(*answers: np.ndarray) -> _Scores:
    weights = resample(10, 500, np.random.default_rng(0))
    counts = tuple(count_by_cluster(TRUTH, np.eye(2, dtype=bool)[answer], CLUSTERS)
                   for answer in answers)
    return _Scores(balanced_accuracy, counts, weights)


def test_difference_from_itself_is_nothing() -> None:
    found = scores(np.random.default_rng(1).integers(2, size=200))
    assert found.row(found) == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_differences_are_paired_by_combination() -> None:
    """Both are right in the even combinations and one in every instance beside: sure, though
    either score is not."""
    even = CLUSTERS % 2 == 0
    right = np.arange(200) % 2
    worse = scores(np.where(even, right, 1 - right))
    better = scores(np.where(even | (np.arange(200) % 20 < 4), right, 1 - right))
    own, difference = worse.row(), better.row(worse)
    assert own["value"] == 0.5
    assert own["high"] - own["low"] > 0.4
    assert difference["value"] == pytest.approx(0.1)
    assert 0.0 < difference["low"] < 0.1 < difference["high"] < 0.2


def test_score_of_shuffles_is_their_mean_and_its_interval_spans_them() -> None:
    right = np.arange(200) % 2
    both = scores(right, 1 - right).row()
    assert both == {"value": 0.5, "low": 0.0, "high": 1.0}


def table() -> pd.DataFrame:
    rows = [("test", 0, None, 0.4, False), ("test", 1, None, 0.6, True),
            ("test", 2, None, 0.5, True), ("ood", 1, None, 0.2, True), ("ood", 2, None, 0.9, True),
            ("ood", 1, "shuffled", 0.1, True), ("ood", 2, "shuffled", 0.3, True)]
    return pd.DataFrame([
        {"split": split, "layer": layer, "features": "code", "class": ALL, "against": other,
         "value": value, "low": value - 0.1, "high": value + 0.1, "varies": varies}
        for split, layer, other, value, varies in rows])


def test_layer_is_chosen_on_test_and_compared_on_ood() -> None:
    assert (best_layer(table()), best_layer(table(), "ood")) == (1, 2)
    assert against(table(), 1, "shuffled")["value"] == pytest.approx(0.1)


def test_first_layer_that_varies() -> None:
    assert first_varying(table()) == 1


def test_over_runs_gives_the_standard_error_and_leaves_a_single_run_as_it_is() -> None:
    rows = pd.DataFrame({"kind": ["hyla", "hyla", "linear"], "layer": [0, 0, 0],
                         "value": [0.2, 0.4, 0.5], "low": 0.0, "high": 1.0})
    several, single = over_runs(rows, ["kind", "layer"]).to_dict("records")
    assert (several["value"], several["low"]) == (pytest.approx(0.3), pytest.approx(0.2))
    assert (single["low"], single["high"]) == (0.0, 1.0)
    assert per_kind(rows) == "linear 0.50, HYLA 0.30 (linear one run, HYLA 2 runs)"
    assert per_kind(rows[:2]) == "HYLA 0.30 (2 runs)"


def test_a_run_whose_codes_do_not_vary_counts_where_those_of_another_do() -> None:
    rows = pd.DataFrame({"layer": [0, 0, 1, 1], "features": "code", "value": [0.1, 0.1, 0.1, 0.5],
                         "varies": [False, False, False, True]})
    assert of_varying(rows)["value"].tolist() == [0.1, 0.5]
    assert of_varying(rows[:0]).empty
