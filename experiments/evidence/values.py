"""What was measured for a claim? A table of one form, whatever its rule; `evidence` checks it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from latentcode.errors import check

COLUMNS = ("member", "control", "run", "seed", "split_seed", "value", "low", "high", "se", "n")
"""One row per measured value.

member      name of a member of the claim's setting (`Setting.grid.points()`), such as kind=hyla;
            `COMPARED` for a quantity that compares all members; for `excess` it may be followed by
            a colon and an aspect that has to pass by itself (kind=hyla: layer 0, term 1); for
            `exact`: what part of the statement
control     for `excess`: the name of the control that was subtracted; otherwise None
run         the run's name; None where the task alone is measured
seed, split_seed   of the run; None where the task alone is measured
value       the number, in the library's units; for `excess` the paired difference from the
            control; for `exact` 1.0 (holds) or 0.0
low, high   for `excess`: 95 % interval of that difference, clustered by combination; where the task
            alone is measured: over instances; else None
se, n       where the task alone is measured: standard error and number of instances; for `exact`,
            n may be the number of cells that were looked at, fewer than three leaving it undecided;
            else None
"""

COMPARED = "all members"
"""The member of a value that compares all members, of the runs of one seed (rule `bound`)."""

_TEXTS = ("member", "control", "run")
_WHOLE = ("seed", "split_seed", "n")
_KEY = ("member", "control", "run", "seed", "split_seed")


def evidence(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the rows as a table with all of `COLUMNS`; a column that a row lacks is None.

    Numbers are float64, whole ones Int64, names objects. `ConfigError` names a row without member
    or value, a key that is no column, a number that is not finite or not whole, an interval or
    seeds of which half is missing, and a row that is given twice.
    """
    read = [_read(row) for row in rows]
    types = {name: object if name in _TEXTS else "Int64" if name in _WHOLE else "float64"
             for name in COLUMNS}
    table = pd.DataFrame({name: pd.Series([row[name] for row in read], dtype=dtype)
                          for name, dtype in types.items()})
    twice = table[table.duplicated(list(_KEY))]
    check(twice.empty, "evidence has two values of the same "
          f"{', '.join(_KEY)}: {_named(twice)}; expected one")
    return table


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    where = f"evidence of {row.get('member')!r}"
    unknown = [str(name) for name in row if name not in COLUMNS]
    missing = [name for name in ("member", "value") if row.get(name) is None]
    check(not unknown, f"{where} has unknown column(s) {', '.join(unknown)}; expected: "
          f"{', '.join(COLUMNS)}")
    check(not missing, f"{where} lacks column(s) {', '.join(missing)}")
    read: dict[str, Any] = {
        name: _text(row.get(name), f"{name} in {where}") if name in _TEXTS
        else _number(row.get(name), f"{name} in {where}", name in _WHOLE) for name in COLUMNS}
    for name in ("member", "value"):
        check(read[name] is not None, f"{name} in {where} is {row[name]!r}; expected "
              + ("a name" if name == "member" else "a finite number"))
    for first, second in (("low", "high"), ("seed", "split_seed")):
        check((read[first] is None) == (read[second] is None),
              f"{first} in {where} is {read[first]!r} and {second} {read[second]!r}; expected "
              "both or neither")
    check(read["run"] is None or read["seed"] is not None,
          f"seed in {where} is None; expected that of run {read['run']}")
    check(read["low"] is None or read["low"] <= read["high"],
          f"low in {where} is {read['low']!r}; expected at most high, {read['high']!r}")
    check(read["se"] is None or read["se"] >= 0,
          f"se in {where} is {read['se']!r}; expected at least 0")
    return read


def _text(value: Any, what: str) -> str | None:
    if _is_missing(value):
        return None
    check(isinstance(value, str) and bool(value), f"{what} is {value!r}; expected a name or None")
    return str(value)


def _number(value: Any, what: str, whole: bool) -> float | int | None:
    if _is_missing(value):
        return None
    expected = "a whole number" if whole else "a finite number"
    check(isinstance(value, (Real, np.bool_)) and math.isfinite(float(value))
          and (not whole or float(value).is_integer()), f"{what} is {value!r}; expected {expected}")
    return int(value) if whole else float(value)


def _is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, or the NaN and NA that a table has in its place."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _named(rows: pd.DataFrame) -> str:
    """Return the key of the first of some rows."""
    return "" if rows.empty else ", ".join(str(rows.iloc[0][name]) for name in _KEY)
