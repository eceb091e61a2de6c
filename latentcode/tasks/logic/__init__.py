"""Fuzzy logic: sums of products of variables and their negations."""

from __future__ import annotations

from latentcode.tasks.logic.task import (
    FuzzyLogic,
)

__all__ = ["FuzzyLogic"]
