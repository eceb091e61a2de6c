"""Labels of codes: which belong together, and what a further one must be.

A label has one value per instance. Names resolve: `rule` stands for `rule_0` with a pair whose
response is token 0, and the group `rules` for all of `rule_0`, `rule_1`, ...
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from textwrap import shorten
from typing import Any

import numpy as np
import pandas as pd

from latentcode.errors import ConfigError, check

RESERVED = ("instance", "layer", "pair", "fitted", "projection_x", "projection_y")
"""Columns that stand beside labels in tables of codes and of planes; `head_0`, `head_1`, ... are
others."""
NUMBERED = re.compile(r"(.+)_\d+")


def label_groups(columns: Iterable[object]) -> dict[str, tuple[str, ...]]:
    """Return the groups of numbered columns: {"terms": ("term_1", "term_2")}."""
    groups: dict[str, tuple[str, ...]] = {}
    for column in columns:
        match = NUMBERED.fullmatch(str(column))
        if match:
            plural = f"{match[1]}s"
            groups[plural] = (*groups.get(plural, ()), str(column))
    return groups


def check_label_names(columns: Iterable[object]) -> None:
    """Raise `ConfigError` for labels whose names repeat, or stand for columns of our tables."""
    for name, times in Counter(map(str, columns)).items():
        check(times == 1, f"label {name!r} is there {times} times; expected different names")
        check(name not in RESERVED and not re.fullmatch(r"head_\d+", name), f"label {name!r} has "
              "the name of a column of tables of codes; expected another than "
              f"{', '.join(RESERVED)} and head_0, head_1, ...")


def check_new_label(name: object, columns: Iterable[object]) -> None:
    """Raise `ConfigError` for a name that is no text, or that stands for something already.

    columns  the labels that there are; with `rule_0` also `rule`, `rules` and `rule_9` are taken
    """
    check(isinstance(name, str) and name.strip() != "", f"the name of a label is {name!r}; "
          "expected text")
    taken = [*map(str, columns), *RESERVED]
    groups = label_groups([*taken, "head_0"])
    resolved = {*groups, *(group.removesuffix("s") for group in groups)}
    match = NUMBERED.fullmatch(str(name))
    check(name not in taken and name not in resolved
          and (match is None or f"{match[1]}s" not in groups),
          f"label {name!r} exists already, or stands for some that do; expected another name than "
          f"those of {', '.join(taken)}")


def label_values(name: str, values: Any, n: int) -> np.ndarray:
    """Return the values of a label, [n]: bool, whole numbers, text, or measurements.

    values  a tensor, an array or a list of one value per instance

    `ConfigError` for values that are missing, of another shape, or of another or several types.
    """
    if hasattr(values, "detach"):  # a tensor, which need not be on this device
        values = values.detach().cpu()
    try:
        # A list of numbers and text would become text.
        array = np.asarray(values, dtype=object if isinstance(values, list | tuple) else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"label {name!r} is no array: {error}") from None
    check(array.shape == (n,), f"label {name!r} has shape {array.shape}; expected ({n},), one "
          "value per instance")
    missing = int(pd.isna(array).sum())
    check(missing == 0, f"label {name!r} has {missing} missing values (NaN or None) among {n}; "
          "expected none")
    if array.dtype.kind == "O":
        types = {bool if isinstance(v, np.bool_) else int if isinstance(v, np.integer)
                 else float if isinstance(v, np.floating) else type(v) for v in array}
        check(len(types) <= 1 and types <= {bool, int, float, str}, f"label {name!r} has values "
              f"of type {', '.join(sorted(t.__name__ for t in types))}; expected one of bool, "
              "int, str and float")
        array = array if types == {str} else np.array(array.tolist())
    check(array.dtype.kind in "biufUO", f"label {name!r} has values of type {array.dtype}; "
          "expected bool, int, str or float")
    check(array.dtype.kind != "f" or bool(np.isfinite(array).all()),
          f"label {name!r} has infinite values; expected finite ones")
    return array


def described(labels: pd.DataFrame) -> pd.DataFrame:
    """Return what there is to know of labels at a glance, a row each: their values, and some."""
    rows = []
    for name, values in labels.items():
        if pd.api.types.is_float_dtype(values):
            kind = "measurement"
            some = f"{values.min():.4g} to {values.max():.4g}" if len(values) else ""
        else:
            distinct = values.astype(str).unique()
            kind = f"{len(distinct):,}"
            some = shorten(", ".join(distinct[:4]), 80, placeholder=" …")
            some += ", …" if len(distinct) > 4 else ""
        rows.append({"label": str(name), "values": kind, "such as": some})
    return pd.DataFrame(rows, columns=["label", "values", "such as"])


def is_measurement(values: pd.Series) -> bool:
    """Whether a label is a number on a scale rather than a name."""
    return bool(pd.api.types.is_float_dtype(values)) and values.nunique() > 2
