"""The figure of interventions: what switches and what stays, by layers, scope and write."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.probes.style import GREY, category_styles, style


def intervention_figure(table: pd.DataFrame, chance: float | None) -> Figure:
    """Return the rates of an intervention table (`InterventionResult.table`).

    Rows: switch (the answer becomes the donor's) and stay (it remains). A panel per scope and
    site; layers across, one marker per write, bars their 95 % intervals; the dashed line is the
    rate at which a random answer switches.
    """
    table = table[table["metric"].isin(["switch", "stay"])].copy()
    check(len(table) > 0, "the table holds no rates to draw", ProbeError)
    table["write"] = [_name(r) for r in table.itertuples()]
    writes = list(dict.fromkeys(table["write"]))
    panels = list(dict.fromkeys(zip(table["scope"], table["site"], strict=True)))
    layers = sorted(table["layers"].unique(), key=lambda text: (text.count(","), text))
    styles = category_styles(writes)
    width = 0.16 * len(layers) * max(len(writes), 4) ** 0.7 + 0.7
    with style():
        figure = Figure(figsize=(min(width, 4.0) * len(panels) + 2.2, 4.6), layout="constrained")
        grid = figure.subplots(2, len(panels), sharex=True, sharey=True, squeeze=False)
        for row, metric in enumerate(("switch", "stay")):
            grid[row, 0].set_ylabel(f"{metric} rate")
            for column, (scope, site) in enumerate(panels):
                block = table[(table["metric"] == metric) & (table["scope"] == scope)
                              & (table["site"] == site)]
                axes = grid[row, column]
                for i, name in enumerate(writes):
                    offset = 0.7 * ((i + 0.5) / len(writes) - 0.5)
                    _draw(axes, block[block["write"] == name], layers, offset, *styles[name])
                if metric == "switch" and chance is not None:
                    axes.axhline(chance, color=GREY, linestyle="--", linewidth=1.0, zorder=1)
                if row == 0:
                    axes.set_title(scope if site == "code" else f"{scope}, {site}")
                else:
                    axes.set_xlabel("layers")
        grid[0, 0].set_xticks(range(len(layers)), layers)
        grid[0, 0].set_xlim(-0.5, len(layers) - 0.5)
        grid[0, 0].set_ylim(-0.03, 1.03)
        handles = [Line2D([], [], color=color, marker=marker, linestyle="", label=str(name))
                   for name, (color, marker) in styles.items()]
        if chance is not None:
            handles.append(Line2D([], [], color=GREY, linestyle="--", label="random answer"))
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def matrix_figure(matrix: pd.DataFrame, title: str) -> Figure:
    """Return a table of rates as a heat map: rules of instances down, of donors across."""
    with style():
        size = 0.42 * max(matrix.shape) + 1.6
        figure = Figure(figsize=(size + 0.6, size), layout="constrained")
        axes = figure.subplots()
        axes.grid(False)
        image = axes.imshow(matrix.to_numpy(), vmin=0.0, vmax=1.0, cmap="cividis")
        axes.set_xticks(range(matrix.shape[1]), matrix.columns, rotation=90)
        axes.set_yticks(range(matrix.shape[0]), matrix.index)
        axes.set(xlabel="donor", ylabel="instance", title=title)
        for (i, j), value in np.ndenumerate(matrix.to_numpy()):
            if np.isfinite(value):
                axes.text(j, i, f"{value:.2f}".removeprefix("0"), ha="center", va="center",
                          fontsize=7, color="white" if value < 0.6 else "black")
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _name(row: object) -> str:
    alpha, heads = getattr(row, "alpha", np.nan), getattr(row, "heads", "all")
    name = f"{getattr(row, 'write', '')}"
    if not np.isnan(alpha):
        name += f" {alpha:g}"
    if heads != "all":
        name += f", heads {heads}"
    return f"{name}, renormalized" if getattr(row, "renormalized", False) else name


def _draw(
    axes: Axes, block: pd.DataFrame, layers: list[str], offset: float, color: str, marker: str
) -> None:
    if not len(block):
        return
    x = np.array([layers.index(name) for name in block["layers"]]) + offset
    bars = np.stack([block["value"] - block["low"], block["high"] - block["value"]])
    axes.errorbar(x, block["value"], yerr=np.clip(np.nan_to_num(bars), 0.0, None), color=color,
                  marker=marker, markersize=4, linestyle="", elinewidth=1.0)
