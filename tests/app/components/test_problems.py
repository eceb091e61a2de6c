"""What a browser and an address say of tokens is read with care; the strongest heads are shown."""

from __future__ import annotations

import numpy as np
from streamlit.testing.v1 import AppTest

from latentcode.app.components.problems import from_text, strongest, to_text, tokens_of

SCORES = np.array([[0.1, -0.9, 0.0], [0.2, 0.2, 0.3], [0.0, 0.0, 0.5], [0.4, 0.1, 0.1]])


def test_tokens_of_an_address() -> None:
    for numbers in ((), (0,), (0, 1, 2, 5), (3, 5, 7, 8)):
        assert to_text(numbers[::-1]) == to_text(numbers)
        assert numbers == () or from_text(to_text(numbers), 9) == numbers
    assert to_text((0, 1, 2, 5)) == "0-2_5"
    for wrong in ("", "x", "1-", "2-1", "9", "0-9", "-1", "1__2", "1.5"):
        assert from_text(wrong, 9) is None


def test_what_a_browser_says_of_tokens() -> None:
    assert tokens_of({"queries": [2, 1, 2], "keys": []}, 3) == {"queries": (1, 2), "keys": ()}
    for wrong in (None, [], {"queries": [1]}, {"queries": [3], "keys": []},
                  {"queries": ["1"], "keys": []}, {"queries": 1, "keys": []}):
        assert tokens_of(wrong, 3) is None


def test_the_strongest_heads_have_the_largest_scores_of_either_sign() -> None:
    assert strongest(SCORES, 1) == [0]
    assert strongest(SCORES, 3) == [0, 2, 3]
    assert strongest(SCORES[:2], 3) == [0, 1]


def test_all_scores_stand_in_a_table() -> None:
    n = 41

    def page(n: int) -> None:
        import numpy as np

        from latentcode.app.components.problems import attention

        scores = np.arange(-5.0, 2 * n - 5.0).reshape(2, n)
        attention("", scores, [f"{i} “<b>*”" for i in range(n)], n - 1, dark=False)

    test = AppTest.from_function(page, default_timeout=30, kwargs={"n": n}).run()
    assert not test.exception
    table = test.dataframe[0].value
    assert table.shape == (n, 2)
    assert table.iloc[1].tolist() == [-4.0, n - 4.0]
    assert f"{n - 1} “\\<b>\\*”" in test.caption[0].value
