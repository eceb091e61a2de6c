"""What the arcs of a problem are told: scores, the strongest heads, a colour for each."""

from __future__ import annotations

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from latentcode.app.arcs.component import strongest

SCORES = np.array([[0.1, -0.9, 0.0], [0.2, 0.2, 0.3], [0.0, 0.0, 0.5], [0.4, 0.1, 0.1]])


def test_the_strongest_heads_have_the_largest_scores_of_either_sign() -> None:
    assert strongest(SCORES, 1) == [0]
    assert strongest(SCORES, 3) == [0, 2, 3]
    assert strongest(SCORES[:2], 3) == [0, 1]


@pytest.mark.parametrize("n", [40, 41])
def test_all_scores_stand_in_a_table(n: int) -> None:
    def page(n: int) -> None:
        import numpy as np

        from latentcode.app.arcs.component import arcs

        scores = np.arange(-5.0, 2 * n - 5.0).reshape(2, n)
        arcs("", scores, [f"{i} “<b>*”" for i in range(n)], n - 1, dark=False)

    test = AppTest.from_function(page, default_timeout=30, kwargs={"n": n}).run()
    assert not test.exception
    table = test.dataframe[0].value
    assert table.shape == (n, 2)
    assert table.iloc[1].tolist() == [-4.0, n - 4.0]
    assert f"{n - 1} “\\<b>\\*”" in test.caption[0].value
