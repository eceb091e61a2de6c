"""What a member of a user's task raises is named as the task's, and not taken for a bug of ours."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from latentcode.errors import LatentCodeError, TaskError, is_out_of_memory
from latentcode.tasks.base import Task

MEMBERS = ("sample", "losses", "measures", "labels", "positions")
"""The methods that training and reading call."""
UNGUARDED = "unguarded"
"""The attribute of a guarded method that is the method as it was written."""


def guard(task: type[Task], name: str) -> None:
    """Let the `MEMBERS` of a class raise `TaskError`, chained from what they raise themselves.

    Errors that a user can act on already, and those of memory, pass as they are.
    """
    for member in MEMBERS:
        function = inspect.getattr_static(task, member)
        if inspect.isfunction(function):  # once, where a class is registered again or inherits it
            function = getattr(function, UNGUARDED, function)
            setattr(task, member, _guarded(function, name, member))


def _guarded(function: Callable[..., Any], name: str, member: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except LatentCodeError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise TaskError(f"task {name!r}: {member} raised {type(error).__name__}"
                            f"{_said(error)}{_place(error, function)}") from error

    setattr(call, UNGUARDED, function)
    return call


def _said(error: Exception) -> str:
    return f": {error}" if str(error) else ""


def _place(error: Exception, function: Callable[..., Any]) -> str:
    """Return where in the user's file it happened: the innermost line there."""
    file = inspect.unwrap(function).__code__.co_filename
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if frame.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


__all__ = ["guard"]
