"""Texts in a file: one per line of a `.txt`, or one object per line of a `.jsonl`.

    {"text": "The river rises in the hills.", "document": "hills", "kind": "report"}
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import ArtifactError, check
from latentcode.files.storage import rows_in

SUFFIXES = (".txt", ".jsonl")
"""How the names of files of texts end."""


def open_texts(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the texts of a file as they are read, each a row with `text` and perhaps more columns.

    path  a `.txt`, each line of which is a text, or a `.jsonl`, whose lines are objects with a
          string `text` and what else is known of it; empty lines are passed over

    Memory: one line. `ArtifactError` for a file that cannot be read or has another ending, for a
    line that is no such object, for one with other columns than the first, and for a file without
    texts. It is raised when the line is reached, that about the file at the first.
    """
    path = Path(path)
    check(path.suffix in SUFFIXES, f"texts {path} end with {path.suffix!r}; expected "
          f"{' or '.join(SUFFIXES)}: one text per line, or one object with a text per line",
          ArtifactError)
    columns: set[str] = set()
    for where, row, _ in rows_in(path):
        check(isinstance(row, dict) and isinstance(row.get("text"), str) and bool(row["text"]),
              f"{where} is {str(row)[:60]!r}; expected an object with a text, such as "
              '{"text": "The river rises in the hills."}', ArtifactError)
        columns = columns or set(row)
        check(set(row) == columns, f"{where} has the columns {sorted(row)}; expected "
              f"{sorted(columns)}, those of the first", ArtifactError)
        yield row
    check(bool(columns), f"texts {path} hold no text; expected at least one line that is not empty",
          ArtifactError)


def read_texts(path: str | Path) -> pd.DataFrame:
    """Return the texts of a file, a row each, column `text` first; raises what `open_texts` does.
    """
    rows = list(open_texts(path))
    return pd.DataFrame(rows, columns=["text", *(name for name in rows[0] if name != "text")])


__all__ = ["SUFFIXES", "open_texts", "read_texts", "rows_in"]
