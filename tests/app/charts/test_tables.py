"""Does a table say everything once, as it is written?"""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def page() -> None:
    import pandas as pd

    from latentcode.app.charts.theme import show_whole

    show_whole(pd.DataFrame({
        "site": ["a_b", "a_b"], "two_words": ["*x*", "<b>"], "n": [3, 3],
        "share": [0.12345, float("nan")], "score": ["0.1 [0.0, 0.2]", "0.2 [0.1, 0.3]"],
    }), key="test")


def test_a_table_is_shown_whole() -> None:
    test = AppTest.from_function(page, default_timeout=30).run()
    assert not test.exception
    assert test.caption[0].value == "In every row: site a_b."
    table = test.table[0].value
    assert list(table.columns) == ["two words", "n", "share", "score"]
    # Cells are Markdown, and what is in a file is not.
    assert table["two words"].tolist() == ["\\*x\\*", "\\<b>"]
    assert table["share"].tolist() == ["0.123", "–"]
    assert table["score"][0] == "0.1 \\[0.0,\u00a00.2\\]"
