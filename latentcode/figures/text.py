"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd


def markdown_table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table of cells as they are printed."""
    head, *body = (f"| {' | '.join(map(str, row))} |" for row in (columns, *rows))
    # The pages of the zoo, which have checksums, write a column without a name like this.
    return "\n".join([head.replace("|  |", "| |"), "|" + "---|" * len(columns), *body])


def markdown_of(table: pd.DataFrame) -> str:
    """Return a data frame as a Markdown table, without its index."""
    return markdown_table(list(table.columns), table.itertuples(index=False, name=None))
