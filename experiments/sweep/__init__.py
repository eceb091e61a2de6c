"""Does a result hold over seeds and settings? Whole grids of models, trained in one command."""

from __future__ import annotations

from latentcode.experiments.sweep.grid import GRIDS, Grid, load_grid, parse_axis, read_grid
from latentcode.experiments.sweep.run import SweepResult, existing, parse_budget, sweep

__all__ = ["GRIDS", "Grid", "SweepResult", "existing", "load_grid", "parse_axis", "parse_budget",
           "read_grid", "sweep"]
