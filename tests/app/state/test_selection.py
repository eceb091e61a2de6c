"""Does a selection mean the same instances before and after the URL?"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentcode.app.state.selection import MOST_CORNERS, PRECISION, Selection
from latentcode.errors import ConfigError

POINTS = np.random.default_rng(0).uniform(-10.0, 10.0, (500, 2))


def outline(corners: list[tuple[float, float]], plane: str = "") -> dict[str, Any]:
    """What the map reports of an outline."""
    return {"plane": plane, "points": list(map(list, corners))}


def test_an_outline_selects_what_is_inside() -> None:
    triangle = Selection(((0.0, 0.0), (4.0, 0.0), (0.0, 4.0)), instances=(2, 10_000))
    points = np.array([[1.0, 1.0], [3.0, 3.0], [-1.0, 1.0], [0.5, 3.0]])
    assert triangle.rows(points).tolist() == [True, False, True, True]
    horseshoe = Selection(((0, 0), (6, 0), (6, 6), (4, 6), (4, 2), (2, 2), (2, 6), (0, 6)))
    points = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0], [3.0, 1.0]])
    assert horseshoe.rows(points).tolist() == [True, False, True, True]
    assert not Selection()
    assert not Selection().rows(POINTS).any()
    assert Selection.from_text("") == Selection()


coordinate = st.floats(-1e3, 1e3, allow_nan=False)


@settings(max_examples=40)
@given(st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=300),
       st.text("abcxyz0123456789.->!/=, ", max_size=30), st.text(max_size=20),
       st.lists(st.text(max_size=20), max_size=4))
def test_text_gives_the_selection_back(
    corners: list[tuple[float, float]], plane: str, label: str, hidden: list[str]
) -> None:
    made = Selection.drawn({**outline(corners, plane), "label": label, "hidden": hidden})
    text = made.to_text()
    if made:
        assert (made.label, list(made.hidden)) == (label if hidden else "", hidden)
    assert Selection.from_text(text) == made
    through_url = parse_qs(urlencode({"s": text}), keep_blank_values=True)["s"][0]
    assert Selection.from_text(through_url) == made
    assert (Selection.from_text(text).rows(POINTS) == made.rows(POINTS)).all()


@pytest.mark.parametrize("radius", [8.0, 8e-4])
def test_an_outline_is_short_and_hardly_changed(radius: float) -> None:
    angle = np.linspace(0.0, 2.0 * np.pi, 400)
    made = Selection.drawn(outline(list(zip(
        (radius * np.cos(angle)).tolist(), (radius * np.sin(angle)).tolist(), strict=True))))
    assert len(made.corners) <= MOST_CORNERS
    assert len(made.to_text()) < 4_000
    points = POINTS * radius / 8.0
    distance = np.hypot(*points.T)
    clear = np.abs(distance - radius) > 4.0 * PRECISION * radius
    assert (made.rows(points)[clear] == (distance < radius)[clear]).all()


@pytest.mark.parametrize("flat", [
    outline([(1.0, 2.0)] * 9), outline([(1.0, 2.0), (2.0, 1.0)]), outline([])])
def test_a_line_and_a_point_enclose_nothing(flat: dict[str, Any]) -> None:
    assert Selection.drawn(flat) == Selection()


@pytest.mark.parametrize("text", [
    "L1_2_3_4", "L1_2_3", "L1_2_3_4_5_x", "B1_2_3_4", "Q1_2", "I1.5", "Lnan_1_2_3_4_5",
    "<script>", "I-3"])
def test_other_texts_are_told_apart(text: str) -> None:
    with pytest.raises(ConfigError, match="selection"):
        Selection.from_text(text)
