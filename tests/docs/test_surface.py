"""Has the surface changed that others rely on? `python docs/surface.py --write` renews the list."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

import latentcode as lc


@pytest.fixture
def surface(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("surface")


def test_the_list_is_what_there_is(surface: ModuleType) -> None:
    assert surface.LIST.read_text(encoding="utf-8") == surface.surface(), (
        "python docs/surface.py --write")


def test_the_list_is_whole(surface: ModuleType) -> None:
    lines = surface.surface().splitlines()
    assert f"# {len(lc.__all__)} public names" in lines
    assert {"decode", "latentcode decode", "decode --labels", "zoo check --out"} <= set(lines)
    assert any(line.startswith("InterventionResult.classes: patch, scope") for line in lines)
