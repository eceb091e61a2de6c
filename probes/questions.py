"""Which questions are there? The one list of them is `latentcode/__init__.py`, by which users get
them: the command line, studies and what opens saved results ask here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from latentcode.lazy import offered
from latentcode.probes.registered.registry import PROBES

ROOM = "latentcode.probes."
REGISTERS = "register_"
"""How the names of functions begin that register something and ask nothing."""
OF_A_TEXT = ("generate",)
"""Functions of a single text, which have no problems and no result with a score."""


def questions() -> dict[str, str]:
    """Return the questions that come with the library: name -> address of the function."""
    return {name: f"{module}.{name}" for name, module in _of_probes().items()
            if name.islower() and not name.startswith(REGISTERS) and name not in OF_A_TEXT}


def results() -> dict[str, str]:
    """Return what they answer with: name of the class -> its module."""
    return {name: module for name, module in _of_probes().items() if name.endswith("Result")}


def question(name: str) -> Callable[..., Any]:
    """Return a question by its name, of the library or of one's own.

    `UnknownNameError` lists them, and says how one is registered.
    """
    address = questions().get(name)
    if address is None:
        return PROBES.find(name, [*questions(), *PROBES], what="question").question
    module, _, called = address.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(module), called)
    return found


def _of_probes() -> dict[str, str]:
    return {name: module for name, module in offered().items() if module.startswith(ROOM)}


__all__ = ["question", "questions", "results"]
