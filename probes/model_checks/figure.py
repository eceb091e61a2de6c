"""The picture of a check of a model: questions down, layers across."""

from __future__ import annotations

import pandas as pd
from matplotlib.patches import Patch

from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.probes.common.figures import panels

COLORS = {"holds": PALETTE[0], "fails": PALETTE[3], "not compared": GREY}
NUMBERS = 16
"""Layers up to which the numbers are written into their cells."""


def checks_figure(table: pd.DataFrame) -> Figure:
    """Return a cell per question and layer of `ModelCheckResult.table`, with its number."""
    checks, layers = list(table["check"].unique()), list(table["layer"].unique())
    layers = sorted(layers, key=lambda layer: int(layer) if layer.isdigit() else -1)
    width = min(0.62 * len(layers), 12.0) + 1.6
    with panels(1, 1, width, 0.24 * len(checks) + 1.0) as (figure, grid):
        axes = grid[0, 0]
        axes.grid(False)
        for check, layer, outcome, value in zip(
                *(table[name] for name in ("check", "layer", "outcome", "value")), strict=True):
            x, y = layers.index(layer), checks.index(check)
            axes.barh(y, 0.94, 0.9, x - 0.47, color=COLORS[outcome])
            if len(layers) <= NUMBERS and pd.notna(value):
                axes.text(x, y, f"{value:.0e}" if value else "0", ha="center", va="center",
                          fontsize=6.5, color="white")
        step = max(1, len(layers) // NUMBERS)
        axes.set_xticks(range(0, len(layers), step), layers[::step])
        axes.set_yticks(range(len(checks)), checks)
        axes.set(xlim=(-0.5, len(layers) - 0.5), ylim=(len(checks) - 0.5, -0.5), xlabel="layer")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.legend(handles=[Patch(color=COLORS[name], label=name) for name in COLORS
                               if name in set(table["outcome"])],
                      loc="outside upper center", ncols=3)
    return figure
