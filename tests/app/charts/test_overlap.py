"""How many neighbours do models share?"""

from __future__ import annotations

import numpy as np
import pytest

from latentcode.app.charts.overlap import shared_neighbours


def test_the_share_is_counted_instance_by_instance() -> None:
    here = np.array([[0.0], [1.0], [2.1], [10.0], [11.0], [12.1]])
    # 2 and 3 have changed places, the rest has stayed.
    there = np.array([[0.0], [1.0], [10.0], [2.1], [11.0], [12.1]])
    share = shared_neighbours([here, there], k=2)
    assert share.tolist() == [0.5, 0.5, 0.0, 0.0, 0.5, 0.5]
    with_itself = shared_neighbours([here, there, here], k=2)
    assert with_itself.tolist() == pytest.approx([0.75, 0.75, 0.5, 0.5, 0.75, 0.75])


def test_unrelated_points_share_what_chance_gives() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(2, 400, 5))
    assert shared_neighbours([one, other]).mean() == pytest.approx(10 / 399, abs=0.01)
    assert (shared_neighbours([one, 3.0 * one + 7.0]) == 1.0).all()
