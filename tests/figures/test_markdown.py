"""Are tables Markdown?"""

from __future__ import annotations

from latentcode.figures.markdown import markdown_table


def test_a_table_has_a_line_per_row_and_keeps_empty_cells() -> None:
    assert markdown_table(["", "n"], [["a", 1], ["b", ""]]) == (
        "| | n |\n|---|---|\n| a | 1 |\n| b |  |")
