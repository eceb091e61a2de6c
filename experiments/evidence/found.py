"""What the questions of a study found: results by run, their tables and figures, and the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import UnknownNameError
from latentcode.experiments.evidence.keeping import Measured
from latentcode.experiments.evidence.plan import Plan, imported, taken_by
from latentcode.figures.style import Figure
from latentcode.files.storage import replace_file, write_text
from latentcode.models.config import kind_of
from latentcode.probes.common.results import TableResult
from latentcode.runs import Run

NAMING = ("task", "kind", "run", "seed")
"""Columns that name a run; they stand before those of a result."""
CHECKPOINT = "checkpoint"
"""Column of the step that was asked, where several are."""
DPI = 110
"""Of figures."""
Tables = Mapping[str, pd.DataFrame]
Answered = tuple[list[Run], Any]
"""The runs that were asked, and what came of it, of the kind of its question (`Asked.kind`)."""


@dataclass(frozen=True)
class Found:
    """What was answered: by the name of what was asked, the runs that were asked and the result."""

    plan: Plan
    runs: Mapping[str, Sequence[Run]]
    results: Mapping[str, Sequence[Answered]]
    steps: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of what is asked of several checkpoints: which one each result is of."""

    def joined(self, name: str, table: str) -> pd.DataFrame:
        """Return a table of the results of `name`, after the columns that name their run; if
        several checkpoints were asked, `checkpoint` is the step of each."""
        asked = self.plan.ask[name]
        settings = {column: asked.settings[column] for column in asked.columns}

        def part(of: list[Run], result: Any, at: dict[str, int]) -> pd.DataFrame:
            own = (result.tables if isinstance(result, Measured) else result.tables())[table]
            return own.assign(**(naming(of[0]) if len(of) == 1 else {}), **at, **settings)

        # A question of a study's own says itself which step it was asked at.
        steps = [{CHECKPOINT: step} for step in self.steps.get(name, ())
                 if not issubclass(asked.kind, Measured)] or [{}] * len(self.results[name])
        parts = [part(of, result, at) for (of, result), at in zip(
            self.results[name], steps, strict=True)]
        whole = pd.concat([one for one in parts if len(one)] or parts[:1], ignore_index=True)
        first = [column for column in (*NAMING, CHECKPOINT, *settings) if column in whole]
        return whole[[*first, *(column for column in whole if column not in first)]]

    def figures(self, tables: Tables) -> dict[str, Any]:
        """Return the figures that the study keeps, by file name."""
        drawn: dict[str, Any] = {}
        for name in self.plan.figures:
            if ":" in name:
                draw = imported(name)
                drawn |= {f"figures/{file}": figure for file, figure in draw(
                    tables, **taken_by(draw, found=self)).items()}
            else:
                drawn |= {f"figures/{'-'.join([name, *(run.name for run in of[:1]), file])}": figure
                          for of, result in self.results[name] if isinstance(result, TableResult)
                          for file, figure in result.figures().items()}
        return drawn


class TablesByName(dict[str, pd.DataFrame]):
    """Tables by name, which say what they are where one is not among them."""

    def __missing__(self, name: str) -> pd.DataFrame:
        raise UnknownNameError("table", name, self)


def tables_in(out: Path, names: Sequence[str] | None = None) -> TablesByName:
    """Return the tables that the folder of a study holds, or those of these names."""
    paths = sorted((out / "tables").glob("*.csv"))
    return TablesByName({path.stem: read_csv(path) for path in paths
                         if names is None or path.stem in names})


def csv_of(table: pd.DataFrame) -> str:
    """Return a table as the text of a CSV file, numbers with four digits."""
    return table.to_csv(index=False, float_format="%.4g")


def write_tables(out: Path, tables: Tables) -> None:
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


def read_csv(file: Path | StringIO) -> pd.DataFrame:
    """Return a table as it was written: what is empty is no number, and no text is."""
    table: pd.DataFrame = pd.read_csv(file, keep_default_na=False, na_values=[""])
    return table


def naming(run: Run) -> dict[str, Any]:
    """Return the columns that name a run."""
    return {"task": run.config.task.name, "kind": kind_of(run.config.model), "run": run.name,
            "seed": run.config.training.seed}


def all_tables(found: Found) -> dict[str, pd.DataFrame]:
    """Return every table of every result: `NAME` is the first, `NAME_TABLE` the others; tables of a
    question of one's own have their names."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for name, asked in found.plan.ask.items():
        if not found.results[name]:
            continue
        _, first = found.results[name][0]
        keys = (names_of_tables(asked.into or name, asked.kind)
                if issubclass(asked.kind, TableResult) else
                {table: table for table in first.tables})
        for table, key in keys.items():
            parts.setdefault(key, []).append(found.joined(name, table))
    return {key: pd.concat(of, ignore_index=True) for key, of in parts.items()}


def names_of_tables(name: str, kind: type[TableResult]) -> dict[str, str]:
    """Return what the tables of a result are called here; those with a row per instance are left
    out."""
    tables = [table for table in kind.COLUMNS if table not in kind.OPEN]
    return {table: name if number == 0 else f"{name}_{table}"
            for number, table in enumerate(tables)}
