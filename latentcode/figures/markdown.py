"""Tables that are read as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from latentcode.errors import check

MARKS = "<!-- from the results: begin -->", "<!-- from the results: end -->"
"""Between these lines a page is written by a program."""


def markdown_table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table of cells as they are printed."""
    head, *body = (f"| {' | '.join(map(str, row))} |" for row in (columns, *rows))
    # The pages of the zoo, which have checksums, write a column without a name like this.
    return "\n".join([head.replace("|  |", "| |"), "|" + "---|" * len(columns), *body])


def markdown_of(table: pd.DataFrame) -> str:
    """Return a data frame as a Markdown table, without its index."""
    return markdown_table(list(table.columns), table.itertuples(index=False, name=None))


def with_results(page: str, part: str) -> str:
    """Return a page with `part` between its two marks."""
    begin, end = MARKS
    check(page.count(begin) == page.count(end) == 1, f"the page lacks {begin} or {end}")
    before, after = page.split(begin)[0], page.split(end)[1]
    return f"{before}{begin}\n\n{part.strip()}\n\n{end}{after}"


__all__ = ["MARKS", "markdown_of", "markdown_table", "with_results"]
