"""Does the page of similarity show the cosines of the mean codes, and two of them?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from small_app import RULES, charts, drawn_codes, shown, text

from latentcode.app.pages.similarity import (
    CELL,
    beside_controls,
    same_value_cosines,
    unit_vectors,
    within_sentence,
)
from latentcode.probes.similarity import cosine_matrix, similarity


def test_the_matrix_is_that_of_the_mean_codes(codes: Path) -> None:
    test = shown("similarity", model="runs/codes", centring="raw", label="rule_0")  # an older name
    assert not test.warning
    assert "of the values of rule?" in text(test)
    assert "Two codes of the same rule have a mean raw cosine of" in text(test)
    assert "labels shuffled among instances" in text(test)
    matrix, bars = charts(test).values()
    means = drawn_codes().mean_by("rule", layer=1, pair="response->response")
    order = list(matrix.layout.xaxis.ticktext)
    assert sorted(order) == sorted(RULES)
    expected = cosine_matrix(means.loc[order].to_numpy(dtype=np.float64))
    apart = np.where(np.eye(len(order), dtype=bool), np.nan, expected)
    np.testing.assert_allclose(np.asarray(matrix.data[0].z, dtype=float), apart, atol=1e-6)
    # At first the most alike values are shown.
    one, other = (trace.name for trace in bars.data[:2])
    off = expected - 2.0 * np.eye(len(order))
    assert expected[order.index(one), order.index(other)] == pytest.approx(off.max())
    np.testing.assert_allclose(bars.data[0].y, means.loc[one], atol=1e-6)


def test_a_cell_shows_its_two_codes_and_their_difference(codes: Path) -> None:
    similarity(drawn_codes(), label="rule", controls=False, n_bootstrap=100).save(
        codes / "results" / "similarity", figures=False)
    test = shown("similarity", model="runs/codes", **{CELL: "sum~constant"})
    _, bars = charts(test).values()
    means = drawn_codes().mean_by("rule", layer=1, pair="response->response")
    assert [trace.name for trace in bars.data[:2]] == ["sum", "constant"]
    np.testing.assert_allclose(bars.data[2].y, means.loc["sum"] - means.loc["constant"], atol=1e-6)
    assert "Stored result, 90 instances" in text(test)


def test_it_says_for_which_values_codes_are_no_more_alike_than_shuffled() -> None:
    table = pd.DataFrame({"cosine": [0.5, 0.02, 0.3], "shuffled": [0.1, 0.05, 0.3]},
                         index=["sum", "a*b", "constant"])
    said = within_sentence(table, "rule", "centred")
    assert "**For 2 of 3 values** it is no more than with labels shuffled" in said
    assert "a\\*b (0.02, shuffled up to 0.05), constant (0.30, shuffled up to 0.30)." in said
    assert "**For every value** that is more" in within_sentence(
        table.assign(shuffled=-1.0), "rule", "centred")
    none = within_sentence(table.assign(shuffled=1.0), "rule", "centred")
    assert "**For every value** it is no more" in none


def test_it_says_above_which_controls_a_cosine_is_not() -> None:
    rows = pd.DataFrame({"features": ["code", "shuffled", "untrained"], "value": [0.65, -0.8, 0.61],
                         "low": [0.55, -0.9, -0.1], "high": [0.72, 0.3, 0.79]})
    said = beside_controls(rows)
    assert "**Not above every control.**" in said
    assert "**Above every control**" in beside_controls(rows.iloc[:2])
    assert beside_controls(rows.iloc[:1]) == ""


def test_a_value_of_like_codes_exceeds_shuffled_labels() -> None:
    rng = np.random.default_rng(0)
    values = pd.Series(["alike"] * 60 + ["any"] * 60 + ["once"])
    points = rng.normal(size=(121, 6))
    points[:60] += [6.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    unit = unit_vectors(points)
    table = same_value_cosines(unit, values)
    assert list(table.index) == ["alike", "any"]  # no two codes have the third value
    for value in table.index:
        mine = unit[values == value]
        pairs = (mine @ mine.T)[np.triu_indices(len(mine), 1)]
        assert table.loc[value, "cosine"] == pytest.approx(pairs.mean())
    assert table.loc["alike", "cosine"] > table.loc["alike", "shuffled"] + 0.2
    assert table.loc["any", "cosine"] < table.loc["any", "shuffled"]
