"""Are the mean cosines those of all pairs, and is a label beside itself, shuffled?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from latentcode.app.data.cosines import same_value_cosines, unit_vectors


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
