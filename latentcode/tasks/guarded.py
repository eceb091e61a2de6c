"""What a member of a user's task raises is named as the task's, and not taken for a bug of ours."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from latentcode.errors import TaskError, called
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
        return called(f"task {name!r}: {member}", TaskError, function, *arguments, **options)

    setattr(call, UNGUARDED, function)
    return call


__all__ = ["guard"]
