"""Fuzzy logic: sums of products of variables and their negations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.lazy import lazy_module

if TYPE_CHECKING:
    from latentcode.tasks.logic.task import FuzzyLogic as FuzzyLogic
    from latentcode.tasks.logic.task import evaluate as evaluate
    from latentcode.tasks.logic.task import literals as literals

__getattr__, __dir__, __all__ = lazy_module(__name__)
