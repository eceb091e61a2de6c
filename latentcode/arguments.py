"""One or several? What callers give where several are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from latentcode.errors import ProbeError, check, check_choice


def as_tuple(values: Any) -> tuple[Any, ...]:
    """Return what is given as several; text, a path, a number or an object is one.

    So `pairs="query->query"` and `layers=0` mean what they say, and text is never taken apart
    into its letters.
    """
    one = isinstance(values, str | bytes | os.PathLike) or not isinstance(values, Iterable)
    return (values,) if one else tuple(values)


def chosen(what: str, wanted: Any, available: Sequence[Any]) -> tuple[Any, ...]:
    """Return what is wanted of `available`, one or several of them, all by default.

    `UnknownNameError` for other names, `ProbeError` for none and for a name that is repeated.
    """
    if wanted is None:
        return tuple(available)
    wanted = as_tuple(wanted)
    check(len(wanted) > 0, f"{what}s is empty; expected some of {list(available)}", ProbeError)
    for name in wanted:
        check_choice(what, name, available)
    check_distinct(f"{what}s", wanted)
    return wanted


def check_distinct(what: str, names: Sequence[Any]) -> None:
    """Raise `ProbeError` for a name that is repeated."""
    repeated = sorted({str(name) for name in names if list(names).count(name) > 1})
    check(not repeated, f"{what} repeats {', '.join(repeated)}; expected different ones",
          ProbeError)
