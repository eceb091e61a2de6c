"""Does a selection mean the same instances before and after the URL?"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentcode.app.state.selection import PRECISION, Selection, has_label
from latentcode.errors import ConfigError

POINTS = np.random.default_rng(0).uniform(-10.0, 10.0, (500, 2))


def outline(x: list[float], y: list[float], kind: str = "lasso", plane: str = "") -> dict[str, Any]:
    """What the map reports of an outline."""
    return {"plane": plane, "kind": kind, "points": list(map(list, zip(x, y, strict=True)))}


def test_lasso_selects_what_is_inside() -> None:
    triangle = Selection(lassos=(((0.0, 0.0), (4.0, 0.0), (0.0, 4.0)),))
    points = np.array([[1.0, 1.0], [3.0, 3.0], [-1.0, 1.0], [0.5, 3.0]])
    assert triangle.rows(points).tolist() == [True, False, False, True]
    horseshoe = Selection(lassos=(
        ((0, 0), (6, 0), (6, 6), (4, 6), (4, 2), (2, 2), (2, 6), (0, 6)),))
    points = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0], [3.0, 1.0]])
    assert horseshoe.rows(points).tolist() == [True, False, True, True]
    assert not Selection()
    assert not Selection().rows(POINTS).any()
    assert Selection.from_text("") == Selection()


def test_box_is_the_same_from_any_corner() -> None:
    one, other = Selection(boxes=(((-2, 3), (4, -1)),)), Selection(boxes=(((4, 3), (-2, -1)),))
    expected = ((POINTS >= [-2, -1]) & (POINTS <= [4, 3])).all(axis=1)
    assert 0 < expected.sum() < len(POINTS)
    assert (one.rows(POINTS) == expected).all()
    assert (other.rows(POINTS) == expected).all()


def test_shapes_and_clicks_are_united() -> None:
    box, lasso = ((-5.0, -5.0), (0.0, 0.0)), ((1.0, 1.0), (5.0, 1.0), (5.0, 5.0), (1.0, 5.0))
    together = Selection(lassos=(lasso,), boxes=(box,), instances=(7, 10_000))
    expected = Selection(lassos=(lasso,)).rows(POINTS) | Selection(boxes=(box,)).rows(POINTS)
    expected[7] = True
    assert (together.rows(POINTS) == expected).all()


coordinate = st.floats(-1e3, 1e3, allow_nan=False)


@settings(max_examples=40)
@given(st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=60),
       st.sampled_from(["lasso", "box"]),
       st.text("abcxyz0123456789.->!/=, ", max_size=30))
def test_text_gives_the_selection_back(
    corners: list[tuple[float, float]], kind: str, plane: str
) -> None:
    x, y = map(list, zip(*(corners if kind == "lasso" else corners[:2]), strict=True))
    made = Selection.drawn(outline(x, y, kind, plane))
    text = made.to_text()
    assert Selection.from_text(text) == made
    through_url = parse_qs(urlencode({"s": text}), keep_blank_values=True)["s"][0]
    assert Selection.from_text(through_url) == made
    again = Selection.from_text(text).rows(POINTS)
    assert (again == made.rows(POINTS)).all()


@pytest.mark.parametrize("radius", [8.0, 8e-4])
def test_outline_is_thinned_and_hardly_changed(radius: float) -> None:
    angle = np.linspace(0.0, 2.0 * np.pi, 400)
    made = Selection.drawn(outline((radius * np.cos(angle)).tolist(),
                                   (radius * np.sin(angle)).tolist()))
    assert len(made.lassos[0]) < 80
    assert len(made.to_text()) < 1_200
    points = POINTS * radius / 8.0
    distance = np.hypot(*points.T)
    clear = np.abs(distance - radius) > 4.0 * PRECISION * radius
    assert (made.rows(points)[clear] == (distance < radius)[clear]).all()


@pytest.mark.parametrize("flat", [
    outline([1.0] * 9, [2.0] * 9), outline([1.0, 2.0], [1.0, 2.0]),
    outline([1.0], [1.0], "box"), outline([], [], "box")])
def test_a_line_and_a_point_enclose_nothing(flat: dict[str, Any]) -> None:
    assert Selection.drawn(flat) == Selection()


@pytest.mark.parametrize(("asked", "rows"), [
    ("sum", [0, 3]), ("SUM", [0, 3]), ("rule=sum", [0]), ("other = sum", [3]), ("con", [1]),
    ("rule=con", [1]), ("nothing", []), ("", []), ("0.5", []), ("s.m", []), ("2", [2])])
def test_instances_are_found_by_their_labels(asked: str, rows: list[int]) -> None:
    labels = pd.DataFrame({"rule_0": ["sum", "constant", "2", "x"],
                           "other": ["a", "b", "c", "Sum"], "loss": [0.5, 1.5, 2.0, 2.5]})
    assert np.flatnonzero(has_label(labels, asked)).tolist() == rows


@settings(max_examples=40)
@given(st.text(max_size=40), st.text(max_size=20), st.lists(st.text(max_size=20), max_size=4))
def test_what_was_searched_for_and_hidden_comes_through_the_url(
    asked: str, label: str, hidden: list[str]
) -> None:
    found = Selection(found=asked, plane="a!b->c")
    assert Selection.from_text(found.to_text()) == found
    drawn = {**outline([0.0, 2.0], [1.0, -1.0], "box", "a!b"), "label": label, "hidden": hidden}
    made = Selection.drawn(drawn)
    assert (made.label, list(made.hidden)) == (label if hidden else "", hidden)
    assert Selection.from_text(made.to_text()) == made


@pytest.mark.parametrize("text", [
    "L1_2_3_4", "L1_2_3", "L1_2_3_4_5_x", "B1_2_3", "B1_2_3_4_5_6", "Q1_2", "I1.5", "L_",
    "Lnan_1_2_3_4_5", "Binf_0_1_1", "<script>", "I-3", "Hrule"])
def test_other_texts_are_told_apart(text: str) -> None:
    with pytest.raises(ConfigError, match="selection"):
        Selection.from_text(text)
