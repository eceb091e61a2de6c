"""Are the mean cosines those of all pairs, and is a label beside itself, shuffled?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from latentcode.app.data.cosines import (
    mean_cosine,
    same_value_cosines,
    unit_deviations,
    unit_vectors,
)


def test_closeness_is_the_mean_over_pairs() -> None:
    points = np.random.default_rng(0).normal(size=(12, 5))
    unit = unit_deviations(points)
    cosines = unit @ unit.T
    assert mean_cosine(unit) == pytest.approx(cosines[np.triu_indices(12, 1)].mean())
    assert np.isnan(mean_cosine(unit[:1]))
    assert (unit_deviations(np.ones((3, 2))) == 0.0).all()


def test_a_value_of_like_codes_exceeds_shuffled_labels() -> None:
    rng = np.random.default_rng(0)
    values = pd.Series(["alike"] * 60 + ["any"] * 60 + ["once"])
    points = rng.normal(size=(121, 6))
    points[:60] += [6.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    unit = unit_vectors(points)
    table = same_value_cosines(unit, values)
    assert list(table.index) == ["alike", "any"]  # no two codes have the third value
    for value in table.index:
        assert table.loc[value, "cosine"] == pytest.approx(mean_cosine(unit[values == value]))
    assert table.loc["alike", "cosine"] > table.loc["alike", "shuffled"] + 0.2
    assert table.loc["any", "cosine"] < table.loc["any", "shuffled"]
