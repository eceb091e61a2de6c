"""What every study writes: its numbers, with what they were computed on, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.figures.style import Figure
from latentcode.files.provenance import environment
from latentcode.files.storage import replace_file, write_json, write_text


def csv_of(table: pd.DataFrame) -> str:
    """Return a table as the text of a CSV file, numbers with four digits."""
    return table.to_csv(index=False, float_format="%.4g")


def write_tables(out: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write tables as CSV into `out/tables`, by name."""
    (out / "tables").mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_text(out / "tables" / f"{name}.csv", csv_of(table))


def write_study(
    out: Path, name: str, numbers: Mapping[str, Any], figures: Mapping[str, Figure], *,
    dpi: int = 110, device: str = "cpu",
) -> None:
    """Write `{name}.json` and the figures, by file name, into a folder."""
    write_figures(out, figures, dpi=dpi)
    write_json(out / f"{name}.json", {**numbers, "environment": environment(device)})


def write_figures(out: Path, figures: Mapping[str, Figure], *, dpi: int = 110) -> None:
    """Write figures, by file name, into a folder."""
    for file, figure in figures.items():
        path = out / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            figure.savefig(temporary, dpi=dpi, format=path.suffix[1:])
