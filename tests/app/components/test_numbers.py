"""What the bars say and what the URL says of numbers by hand is read with care."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
from latentcode.app.charts.theme import reach
from latentcode.app.components.numbers import numbers_of, read_numbers


def test_numbers_of_a_url() -> None:
    assert read_numbers("set_1_-2.5", "set", 2).tolist() == [1.0, -2.5]  # type: ignore[union-attr]
    for wrong in (None, "", "set", "set_1", "set_1_x", "set_1_nan", "scale_1_2", "set_1_2_3"):
        assert read_numbers(wrong, "set", 2) is None
    assert (reach([0.2, -1.0]), reach([0.1, -3.1])) == (1.0, 5.0)


def test_what_a_browser_says_of_bars() -> None:
    assert numbers_of([1, -2.0], 2, 2.0) == (1.0, -2.0)
    nan = float("nan")
    for wrong in (None, "1_2", [1.0], [1.0, "2"], [1.0, 2.5], [1.0, nan], [1.0, None]):
        assert numbers_of(wrong, 2, 2.0) is None
