"""One or several? What callers give where several are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any


def as_tuple(values: Any) -> tuple[Any, ...]:
    """Return what is given as several; text, a path, a number or an object is one.

    So `pairs="query->query"` and `layers=0` mean what they say, and text is never taken apart
    into its letters.
    """
    one = isinstance(values, str | bytes | os.PathLike) or not isinstance(values, Iterable)
    return (values,) if one else tuple(values)


__all__ = ["as_tuple"]
