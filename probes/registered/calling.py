"""A function of a user's is called, and what it raises is named as its probe's."""

from __future__ import annotations

import traceback
from inspect import unwrap
from pathlib import Path
from typing import Any

from latentcode.errors import LatentCodeError, ProbeError, is_out_of_memory


def called(name: str, what: str, function: Any, *of: Any, **options: Any) -> Any:
    """Call a function of the probe `name`; `ProbeError` that names the probe for what it raises."""
    try:
        return function(*of, **options)
    except LatentCodeError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        file = getattr(getattr(unwrap(function), "__code__", None), "co_filename", "")
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                 if frame.filename == file]
        line = f" ({Path(file).name}, line {lines[-1]})" if lines else ""
        raise ProbeError(f"probe {name!r}: {what} raised {type(error).__name__}: {error}"
                         f"{line}") from error


__all__ = ["called"]
