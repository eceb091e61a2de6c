"""The modules of docs/, which import each other by name and are no package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest
from places import ROOT


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that imports a module of docs/."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return import_module
