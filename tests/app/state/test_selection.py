"""Does a selection mean the same instances before and after the URL?"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentcode.app.state.selection import PRECISION, Selection
from latentcode.errors import ConfigError

POINTS = np.random.default_rng(0).uniform(-10.0, 10.0, (500, 2))


def event(**selection: Any) -> dict[str, Any]:
    return {"selection": {"points": [], "point_indices": [], "box": [], "lasso": []} | selection}


def outline(x: list[float], y: list[float], axis: str = "x") -> dict[str, Any]:
    return {"xref": axis, "yref": axis.replace("x", "y"), "x": x, "y": y}


def circle(radius: float, corners: int = 400, axis: str = "x") -> dict[str, Any]:
    angle = np.linspace(0.0, 2.0 * np.pi, corners)
    return outline((radius * np.cos(angle)).tolist(), (radius * np.sin(angle)).tolist(), axis)


def test_lasso_selects_what_is_inside() -> None:
    triangle = Selection(lassos=(((0.0, 0.0), (4.0, 0.0), (0.0, 4.0)),))
    points = np.array([[1.0, 1.0], [3.0, 3.0], [-1.0, 1.0], [0.5, 3.0]])
    assert triangle.rows(points).tolist() == [True, False, False, True]


def test_lasso_can_be_concave() -> None:
    horseshoe = Selection(lassos=(
        ((0, 0), (6, 0), (6, 6), (4, 6), (4, 2), (2, 2), (2, 6), (0, 6)),))
    points = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0], [3.0, 1.0]])
    assert horseshoe.rows(points).tolist() == [True, False, True, True]


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


def test_nothing_is_selected_without_shapes() -> None:
    assert not Selection()
    assert not Selection().rows(POINTS).any()
    assert Selection.from_text("") == Selection()
    assert Selection.from_event(None) == Selection()
    assert Selection.from_event(event()) == Selection()


coordinate = st.floats(-1e3, 1e3, allow_nan=False)


@given(st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=60),
       st.lists(coordinate, min_size=4, max_size=4),
       st.text("abcxyz0123456789.->!/=, ", max_size=30))
def test_text_gives_the_selection_back(
    corners: list[tuple[float, float]], box: list[float], plane: str
) -> None:
    x, y = map(list, zip(*corners, strict=True))
    made = Selection.from_event(event(lasso=[outline(x, y)], box=[outline(box[:2], box[2:])]),
                                planes={"x": plane})
    text = made.to_text()
    assert Selection.from_text(text) == made
    assert Selection.from_text(parse_qs(urlencode({"s": text}))["s"][0]) == made
    again = Selection.from_text(text).rows(POINTS)
    assert (again == made.rows(POINTS)).all()


def test_outline_is_thinned_and_hardly_changed() -> None:
    drawn = circle(8.0)
    made = Selection.from_event(event(lasso=[drawn]))
    assert len(made.lassos[0]) < 80
    assert len(made.to_text()) < 1_000
    distance = np.hypot(*POINTS.T)
    clear = np.abs(distance - 8.0) > 2.0 * PRECISION * 16.0
    assert (made.rows(POINTS)[clear] == (distance < 8.0)[clear]).all()


def test_small_outlines_keep_their_precision() -> None:
    points = POINTS * 1e-4
    made = Selection.from_event(event(lasso=[circle(5e-4)]))
    distance = np.hypot(*points.T)
    clear = np.abs(distance - 5e-4) > 5e-6
    assert (made.rows(points)[clear] == (distance < 5e-4)[clear]).all()


def test_a_line_and_a_point_enclose_nothing() -> None:
    dot = outline([1.0] * 9, [2.0] * 9)
    line = outline([1.0, 2.0], [1.0, 2.0])
    assert Selection.from_event(event(lasso=[dot, line])).lassos == ()


def test_click_selects_by_customdata_in_every_form_that_browsers_send() -> None:
    points = [{"customdata": [12, "sum"]}, {"customdata": {"0": 3.0, "1": 0.5}},
              {"customdata": 5}, {"customdata": [12]}, {"x": 0.0}]
    made = Selection.from_event(event(points=points), planes={"x": "a"})
    assert made.instances == (12, 3, 5)
    assert Selection.from_text(made.to_text()) == made
    assert np.flatnonzero(made.rows(POINTS)).tolist() == [3, 5, 12]


def test_points_inside_an_outline_are_not_clicks() -> None:
    made = Selection.from_event(event(lasso=[circle(1.0)], points=[{"customdata": [12]}]))
    assert made.instances == ()
    assert len(made.lassos) == 1


def test_outlines_belong_to_the_picture_of_their_axis() -> None:
    planes = {"x": "first", "x2": "second"}
    made = Selection.from_event(event(lasso=[circle(1.0), circle(2.0, axis="x2")]), planes=planes)
    assert made.plane == "second"
    assert len(made.lassos) == 1
    assert max(x for x, _ in made.lassos[0]) == pytest.approx(2.0, abs=0.02)


def test_shapes_for_the_picture() -> None:
    selection = Selection(lassos=(((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)),),
                          boxes=(((2.0, 3.0), (4.0, 5.0)),))
    path, rectangle = selection.shapes(color="#000000", x="x2", y="y2")
    assert path["path"] == "M0.0,0.0L1.0,0.0L0.0,1.0Z"
    assert (path["xref"], path["yref"]) == ("x2", "y2")
    assert [rectangle[key] for key in ("x0", "y0", "x1", "y1")] == [2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("text", [
    "L1_2_3_4", "L1_2_3", "L1_2_3_4_5_x", "B1_2_3", "B1_2_3_4_5_6", "Q1_2", "I1.5", "L_",
    "Lnan_1_2_3_4_5", "Binf_0_1_1", "<script>", "I-3"])
def test_other_texts_are_told_apart(text: str) -> None:
    with pytest.raises(ConfigError, match="selection"):
        Selection.from_text(text)
