"""Which row of which table? The numbers that templates print, each from a committed file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from latentcode.arguments import as_tuple
from latentcode.errors import ArtifactError, UnknownNameError, check


def fixed(number: float, digits: int = 2, scale: float = 1) -> str:
    """Return scale * number with so many decimals, thousands set apart."""
    return f"{scale * number:z,.{digits}f}"  # z: no minus before a zero


def span(values: Sequence[float], digits: int = 2, scale: float = 1) -> str:
    """Return `0.1 to 0.3`: the smallest and the largest; one number, where both look alike."""
    low, high = (fixed(end, digits, scale) for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def read_table(folder: Path, name: str) -> Rows:
    """Return all rows of a CSV table; its numbers are in `value` until a column is named."""
    path = folder / name
    check(path.is_file(), f"table {name} is missing", ArtifactError)
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return Rows(name, tuple(reader), tuple(reader.fieldnames or ()))


@dataclass(frozen=True)
class Rows:
    """Rows of a table, narrowed down until they are those that a sentence speaks of.

    rows(kind="hyla", layers="2,3")   the rows with these entries; of several, one of them each
    rows("max", kind="hyla")          the same, and their numbers are in column `max`
    {{ rows }}                        the number of the only row, with two decimals
    """

    name: str
    """The table and what was asked of it, for errors."""
    rows: tuple[Mapping[str, str], ...]
    """Column -> entry, as the file has it."""
    columns: tuple[str, ...]
    """The table's."""
    column: str = "value"
    """Where the numbers are."""

    def __call__(self, column: str | None = None, /, **entries: object) -> Rows:
        """Return the rows with these entries; entries that no row has are an `UnknownNameError`.

        Rows come in the order of the table, or in that of the entries where several are given.
        """
        rows, asked = list(self.rows), {
            name: [str(entry) for entry in as_tuple(wanted)] for name, wanted in entries.items()}
        for name, wanted in asked.items():
            present = self._entries(name, rows)
            for entry in wanted:
                if entry not in present:
                    raise UnknownNameError(f"{name} of {self.name}", entry, present)
            rows = [row for row in rows if row[name] in wanted]
        rows.sort(key=lambda row: [wanted.index(row[name]) for name, wanted in asked.items()])
        told = " ".join([self.name, *(f"{name}={'|'.join(of)}" for name, of in asked.items())])
        return replace(self, name=told, rows=tuple(rows), column=column or self.column)

    def __add__(self, other: Rows) -> Rows:
        """Return the rows of both, with a column `table` that tells them apart."""
        names = self.name, other.name
        rows = [{"table": name, **row} for name, part in zip(names, (self, other), strict=True)
                for row in part.rows]
        columns = ("table", *(name for name in self.columns if name in other.columns))
        return replace(self, name=" + ".join(names), rows=tuple(rows), columns=columns)

    def below(self, column: str, bound: float) -> Rows:
        """Return the rows whose number in a column is smaller."""
        rows = tuple(row for row in self.rows if self._number(row, column) < bound)
        return replace(self, name=f"{self.name} {column}<{bound:g}", rows=rows)

    @property
    def present(self) -> Rows:
        """The rows that have a number, where a run may have none; the page says what it leaves out.
        """
        rows = tuple(row for row in self.rows if row[self.column])
        return replace(self, name=f"{self.name} present", rows=rows)

    def _entries(self, column: str, rows: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
        if column not in self.columns:
            raise UnknownNameError(f"column of {self.name}", column, self.columns)
        return tuple(dict.fromkeys(row[column] for row in rows))

    def _number(self, row: Mapping[str, str], column: str) -> float:
        self._entries(column, ())
        try:
            return float(row[column])
        except ValueError:
            raise ArtifactError(f"{column} of {self.name} is {row[column]!r}; expected a number"
                                ) from None

    def values(self, *over: str) -> list[float]:
        """Return the numbers of the rows, which must all differ in the columns `over`.

        So no row slips in that was not meant, such as one of another label or layer.
        """
        check(bool(self.rows), f"{self.name} has no row; expected some", ArtifactError)
        for column in over:
            self._entries(column, ())
        different = {tuple(row[column] for column in over) for row in self.rows}
        varied = [name for name in self.columns if len(self._entries(name, self.rows)) > 1]
        check(len(different) == len(self.rows),
              f"{self.name} has {len(self.rows)} rows; expected {len(different)}, one per "
              f"{' and '.join(over) or 'number'} (they differ in {', '.join(varied)})",
              ArtifactError)
        return [self._number(row, self.column) for row in self.rows]

    @property
    def value(self) -> float:
        """The number of the only row."""
        return self.values()[0]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def mean(self, *over: str) -> float:
        """Return the mean of the rows that differ in the columns `over`."""
        return fmean(self.values(*over))

    def median(self, *over: str) -> float:
        """Return the median of the rows that differ in the columns `over`."""
        return median(self.values(*over))

    def largest(self, *over: str, digits: int = 2, scale: float = 1) -> str:
        """Return the largest number of rows that differ in the columns `over`."""
        return fixed(max(self.values(*over)), digits, scale)

    def fixed(self, digits: int = 2, scale: float = 1) -> str:
        """Return the number of the only row as it is printed."""
        return fixed(self.value, digits, scale)

    def __str__(self) -> str:
        return self.fixed()

    def each(self, over: str, digits: int = 2, scale: float = 1) -> str:
        """Return `0.1, 0.2 and 0.3`: the numbers of rows that differ in column `over`."""
        *first, last = [fixed(value, digits, scale) for value in self.values(over)]
        return f"{', '.join(first)} and {last}" if first else last

    def span(self, *over: str, digits: int = 2, scale: float = 1) -> str:
        """Return `0.1 to 0.3`: the smallest and largest of rows that differ in columns `over`."""
        return span(self.values(*over), digits, scale)
