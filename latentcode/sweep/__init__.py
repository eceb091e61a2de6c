"""Does a result hold over seeds and settings? Whole grids of models, trained in one command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentcode.registry import lazy_module

if TYPE_CHECKING:
    from latentcode.sweep.grid import GRIDS as GRIDS
    from latentcode.sweep.grid import Grid as Grid
    from latentcode.sweep.grid import load_grid as load_grid
    from latentcode.sweep.grid import parse_axis as parse_axis
    from latentcode.sweep.grid import read_grid as read_grid
    from latentcode.sweep.run import SweepResult as SweepResult
    from latentcode.sweep.run import existing as existing
    from latentcode.sweep.run import parse_budget as parse_budget
    from latentcode.sweep.run import sweep as sweep

__getattr__, __dir__, __all__ = lazy_module(__name__)
