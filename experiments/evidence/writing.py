"""What every study writes: its tables and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from latentcode.figures.style import Figure
from latentcode.files.storage import replace_file, write_text

DPI = 110


def csv_of(table: pd.DataFrame) -> str:
    """Return a table as the text of a CSV file, numbers with four digits."""
    return table.to_csv(index=False, float_format="%.4g")


def write_tables(out: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write tables as CSV into `out/tables`, by name."""
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_text(out / "tables" / f"{name}.csv", csv_of(table))


def write_figures(out: Path, figures: Mapping[str, Figure]) -> None:
    """Write figures, by file name, into a folder."""
    for file, figure in figures.items():
        path = out / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            figure.savefig(temporary, dpi=DPI, format=path.suffix[1:])
