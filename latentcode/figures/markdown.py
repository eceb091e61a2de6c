"""Tables that are read as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table of cells as they are printed."""
    head, *body = (f"| {' | '.join(map(str, row))} |" for row in (columns, *rows))
    # The pages of the zoo, which have checksums, write a column without a name like this.
    return "\n".join([head.replace("|  |", "| |"), "|" + "---|" * len(columns), *body])


__all__ = ["markdown_table"]
