"""What a study claims, written down before it is run, and whether its tables bear it out.

    - id: code-tells-the-rule
      claim: The code tells the rule better than every control does.
      table: decoding_contrasts
      rows: {features: code, label: terms, quantity: f1}
      by: [kind, layer, against]
      rule: {name: difference, least: 0.10}
      seen: null

is read from `experiments/evidence/claims/NAME.yaml`. Every combination of values of the columns in
`by` is judged by itself, over the rows that are left: one per run (of an `ordering` one per run and
side; of an `identity` any number). Rows of several layers, labels or classes of a run are not runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from latentcode.arguments import as_tuple
from latentcode.config.fields import later
from latentcode.config.reading import convert, parse_yaml
from latentcode.errors import ArtifactError, ConfigError, UnknownNameError, check, check_choice
from latentcode.experiments.evidence.rules import (
    FEWEST,
    Part,
    difference,
    everywhere,
    number,
    ordering,
    same,
    unknown,
)

OF_RUN = ("task", "kind", "run", "seed")
"""Columns by which tables tell runs apart, where they name any."""
VERDICTS = ("id", "claim", "place", "verdict", "estimate", "low", "high", "p", "n", "why", "seen")
"""Columns of the verdicts."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A paired difference: see `rules.difference`. From columns `value`, `low` and `high`."""

    name: Literal["difference"] = later("difference")
    least: float
    """The smallest mean difference that is enough."""
    fewest: int = later(FEWEST)
    """Runs without which nothing is decided."""
    differs: Literal["everywhere below least", "nowhere above 0"] = later("everywhere below least")
    """What speaks against it."""

    def part(self, name: str, rows: pd.DataFrame) -> Part:
        return difference(name, rows, self.least, fewest=self.fewest, differs=self.differs)

    columns = ("value", "low", "high")


@dataclass(frozen=True, kw_only=True)
class OfColumn:
    """A rule that reads one column."""

    column: str = later("value")
    """Where the numbers are, a row per run."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


@dataclass(frozen=True, kw_only=True)
class Bound(OfColumn):
    """A bound that every run keeps: see `rules.everywhere`."""

    name: Literal["bound"] = later("bound")
    side: Literal["above", "below"]
    """On which side of the bound the claim puts it; the bound itself is on it."""
    bound: float
    fewest: int = later(FEWEST)
    """Runs without which nothing is decided."""

    def part(self, name: str, rows: pd.DataFrame) -> Part:
        return everywhere(name, rows[self.column], self.side, self.bound, fewest=self.fewest)


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """Which of two groups of runs is higher: see `rules.ordering`."""

    name: Literal["ordering"] = later("ordering")
    among: str
    """The column that tells the groups apart, such as kind."""
    higher: str
    """Its entry in the rows that the claim puts above..."""
    lower: str
    """...those with this one."""
    column: str = later("value")
    """Where the numbers are."""

    def part(self, name: str, rows: pd.DataFrame) -> Part:
        above, below = (rows.loc[rows[self.among].astype(str) == entry, self.column]
                        for entry in (self.higher, self.lower))
        return ordering(self.higher, above, self.lower, below)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.among, self.column


@dataclass(frozen=True, kw_only=True)
class Number(OfColumn):
    """A number that was published: see `rules.number`."""

    name: Literal["number"] = later("number")
    value: float
    """As published."""
    error: float
    """Its standard error, over `n` values."""
    n: int
    margin: float
    """The largest difference that is no disagreement."""

    def part(self, name: str, rows: pd.DataFrame) -> Part:
        ours = rows[self.column]
        if ours.isna().any():
            return unknown(name, (len(ours),), int(ours.isna().sum()))
        return number(name, ours.mean(), float(ours.std() / len(ours) ** 0.5), len(ours),
                      self.value, self.error, self.n, self.margin)


@dataclass(frozen=True, kw_only=True)
class Identity(OfColumn):
    """A number that has to be equal to another: see `rules.same`."""

    name: Literal["identity"] = later("identity")
    equals: float
    """What every number in the column has to be..."""
    within: float
    """...up to this much."""

    def part(self, name: str, rows: pd.DataFrame) -> Part:
        return same(name, rows[self.column], self.equals, self.within)


@dataclass(frozen=True)
class Statement:
    """One claim of a study. `ConfigError` names the claim and the key."""

    id: str
    """Its name, which no other claim of the study has."""
    claim: str
    """What is claimed, in one sentence."""
    table: str
    """The table of the study that it is judged on."""
    rows: dict[str, Any]
    """Column -> the entry, or a list of entries, of the rows that count."""
    by: tuple[str, ...]
    """Columns whose combinations are judged by themselves; may be empty."""
    rule: Difference | Bound | Ordering | Number | Identity
    """How it is judged."""
    seen: str | None
    """What of the numbers was known when the rule was written down; null: nothing."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that its table has to have."""
        return tuple(dict.fromkeys((*self.rows, *self.by, *self.rule.columns)))


def read_statements(path: Path) -> tuple[Statement, ...]:
    """Read the claims of a study; `ConfigError` names the claim and the key."""
    check(path.is_file(), f"claims {path} do not exist", ArtifactError)
    data = parse_yaml(path.read_text(encoding="utf-8"), path.name)
    check(isinstance(data, list) and bool(data), f"{path.name} is {data!r}; expected a list of "
          "claims")
    found = tuple(convert(Statement, item, f"{path.name}: claim {number}")
                  for number, item in enumerate(data, 1))
    twice = [name for name, n in Counter(one.id for one in found).items() if n > 1]
    check(not twice, f"{path.name}: claim(s) {', '.join(twice)} given twice; expected every id "
          "once")
    return found


def check_columns(statements: Sequence[Statement], columns: Mapping[str, Sequence[str]]) -> None:
    """Raise `UnknownNameError` for a table or a column that a claim names and that is not there.

    columns  table -> its columns
    """
    for one in statements:
        check_choice(f"table of claim {one.id}", one.table, columns)
        for name in one.columns:
            check_choice(f"column of claim {one.id}, table {one.table}", name,
                         list(columns[one.table]))


def judged(
    statements: Sequence[Statement], tables: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Return a row per claim and combination of its columns `by`: the verdict and what it rests on.

    `UnknownNameError` for a table, a column or an entry that is not there; `ConfigError` for rows
    of which a run has several.
    """
    check_columns(statements, {name: list(map(str, table)) for name, table in tables.items()})
    rows: list[dict[str, Any]] = []
    for one in statements:
        table = tables[one.table]
        for column, wanted in one.rows.items():
            entries = table[column].astype(str)
            for entry in map(str, as_tuple(wanted)):
                if entry not in set(entries):
                    raise UnknownNameError(f"{column} of table {one.table}, in claim {one.id}",
                                           entry, sorted(set(entries)))
            table = table[entries.isin([str(entry) for entry in as_tuple(wanted)])]
        if isinstance(one.rule, Ordering):
            for entry in (one.rule.higher, one.rule.lower):
                check_choice(f"{one.rule.among} of table {one.table}, in claim {one.id}", entry,
                             sorted(set(table[one.rule.among].astype(str))))
        for key, block in (table.groupby(list(one.by), sort=False, dropna=False) if one.by
                           else [((), table)]):
            place = ", ".join(map(str, as_tuple(key)))
            _check_one_per_run(one, place, block)
            part = one.rule.part(place or one.id, block)
            rows.append({"id": one.id, "claim": one.claim, "place": place,
                         "verdict": part.verdict, "estimate": part.estimate, "low": part.low,
                         "high": part.high, "p": part.p, "n": "/".join(map(str, part.n)),
                         "why": part.why, "seen": one.seen})
    return pd.DataFrame(rows, columns=list(VERDICTS))


def _check_one_per_run(one: Statement, place: str, rows: pd.DataFrame) -> None:
    """Raise `ConfigError` where several rows of one run would be taken for several runs."""
    if isinstance(one.rule, Identity) or "run" not in rows:
        return
    key = [name for name in OF_RUN if name in rows]
    key += [one.rule.among] if isinstance(one.rule, Ordering) else []
    twice = rows[rows.duplicated(key, keep=False)]
    if len(twice):
        first = twice[(twice[key] == twice[key].iloc[0]).all(axis=1)]
        scores = {*one.rule.columns, "value", "low", "high"}
        differ = [str(name) for name in first if name not in scores
                  and first[name].nunique(dropna=False) > 1]
        raise ConfigError(
            f"claim {one.id}{f' at {place}' if place else ''} has {len(first)} rows of run "
            f"{first['run'].iloc[0]}; expected one per run: they differ in "
            f"{', '.join(differ) or 'nothing'}, of which `rows` or `by` has to name some")
