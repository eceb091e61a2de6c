"""The figure of distributed alignment search: rates over ranks, and how the searches learned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.probes.common.figures import reach
from latentcode.probes.common.results import blocks

_SEARCHES = {"trained": (PALETTE[0], "o"), "shuffled": (PALETTE[1], "s"),
             "untrained": (PALETTE[2], "^"), "random": (GREY, "v")}


def das_figure(
    table: pd.DataFrame, curves: pd.DataFrame, objectives: Sequence[str]
) -> Figure:
    """Return the rate of each objective's class over ranks, and below the losses over steps.

    A line per search; the dashed line is the rate where the whole activation is written; bars are
    95 % intervals.
    """
    with style():
        columns = objectives or ("operation",)
        figure = Figure(figsize=(4.1 * len(columns), 5.2), layout="constrained")
        grid = figure.subplots(2, len(columns), squeeze=False)
        for column, objective in enumerate(columns):
            rates, losses = grid[:, column]
            draw_rates_by_rank(rates, table[table["objective"].isin([objective, "none"])
                                            & table["class"].eq(objective)])
            rates.set(ylabel=f"rate of {objective}")
            of_objective = curves[curves["objective"] == objective]
            for named, block in blocks(of_objective, ("search", "rank")):
                losses.plot(block["step"], block["loss"], color=_SEARCHES[named["search"]][0],
                            linewidth=0.6 + 0.3 * np.log2(named["rank"] + 1.0))
            losses.set(xlabel="step", ylabel="loss (thicker: higher rank)")
    return figure


def draw_rates_by_rank(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the rates of one class over ranks, with their intervals and a legend."""
    for search, (color, marker) in _SEARCHES.items():
        block = rows[rows["search"] == search].sort_values("rank")
        if len(block):
            axes.errorbar(block["rank"], block["value"], yerr=reach(block), color=color,
                          marker=marker, markersize=4, linewidth=1.0, label=search)
    whole = rows[rows["search"] == "whole"]
    if len(whole):
        axes.axhline(whole["value"].iloc[0], color=GREY, linestyle="--", linewidth=1.0,
                     label="whole")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="rank", ylim=(-0.03, 1.03))
    axes.legend(fontsize=7)
