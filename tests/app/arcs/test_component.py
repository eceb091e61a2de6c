"""What the arcs of a problem are told: scores, the strongest heads, a colour for each."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("streamlit")
from streamlit.testing.v1 import AppTest

from latentcode.app.arcs.component import head_colours, strongest

SCORES = np.array([[0.1, -0.9, 0.0], [0.2, 0.2, 0.3], [0.0, 0.0, 0.5], [0.4, 0.1, 0.1]])


def test_the_strongest_heads_have_the_largest_scores_of_either_sign() -> None:
    assert strongest(SCORES, 1) == [0]
    assert strongest(SCORES, 3) == [0, 2, 3]
    assert strongest(SCORES[:2], 3) == [0, 1]


@pytest.mark.parametrize("dark", [False, True])
def test_sixteen_heads_have_a_colour_each(dark: bool) -> None:
    colours = head_colours(18, dark)
    assert len(set(colours)) == 16
    assert colours[16:] == colours[:2]
    assert all(re.fullmatch("#[0-9A-F]{6}", colour) for colour in colours)


def test_all_scores_stand_in_a_table() -> None:
    def page() -> None:
        import numpy as np

        from latentcode.app.arcs.component import arcs

        scores = np.array([[0.1, -0.9, 0.0], [0.2, 0.2, 0.3]])
        arcs('<i data-token="0">a</i>', scores, ["a", "b", "c"], 2, dark=False)

    test = AppTest.from_function(page).run()
    assert not test.exception
    table = test.dataframe[0].value
    assert table.loc["b", "head 0"] == -0.9
    assert table.shape == (3, 2)
    assert "From c" in test.caption[0].value
    assert "the 2 heads" in test.caption[0].value


@pytest.mark.parametrize(("n", "shaded"), [(40, False), (41, True)])
def test_many_tokens_are_shaded(n: int, shaded: bool) -> None:
    def page(n: int) -> None:
        import numpy as np

        from latentcode.app.arcs.component import arcs

        arcs("", np.ones((2, n)), [f"{i} “<b>*”" for i in range(n)], n - 1, dark=False)

    test = AppTest.from_function(page, kwargs={"n": n}).run()
    assert not test.exception
    assert ("Shade" in test.caption[0].value) is shaded
    assert f"{n - 1} “\\<b>\\*”" in test.caption[0].value
