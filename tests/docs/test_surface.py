"""Has the surface changed that others rely on? `python docs/surface.py --write` renews the list."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType


def test_the_list_is_what_there_is(script: Callable[[str], ModuleType]) -> None:
    surface = script("surface")
    assert surface.LIST.read_text(encoding="utf-8") == surface.surface(), (
        "python docs/surface.py --write")
