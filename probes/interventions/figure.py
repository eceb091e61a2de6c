"""The figure of interventions: where sources flip answers, and what every other patch does."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.heat_maps import heat_map
from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.probes.common.figures import reach

_MAPPED = {"interchange": "the minimal pair's",
           "control": "same constituents, fresh values (control)"}
"""Patches that are drawn as a map of scope x layers, and its heading."""
_RATES = {"flip": (PALETTE[0], "o"), "unchanged": (PALETTE[1], "s")}


def intervention_figure(table: pd.DataFrame, chance: float | None) -> Figure:
    """Return the rates of an intervention table (`InterventionResult.table`).

    Left, where sources were written at several scopes or layers: maps of the rate at which answers
    flip, for the source's codes and below for the control's. Right: every other intervention, the
    rates at which answers flip to the source's and are unchanged, bars their 95 % intervals; the
    dashed line is the rate at which a random answer flips.
    """
    table = table[table["metric"].isin(_RATES)].reset_index(drop=True)
    check(len(table) > 0, "the table holds no rates to draw", ProbeError)
    plain = (table["site"].eq("code") & table["heads"].eq("all") & ~table["renormalized"]
             & table["alpha"].isna() & table["patch"].isin(_MAPPED))
    mapped = table[plain & table["metric"].eq("flip")]
    if len(mapped[["scope", "layers"]].drop_duplicates()) < 2:
        plain[:], mapped = False, mapped[:0]
    listed = table[~plain]
    names = [name_of(r) for r in listed.itertuples()]
    order = list(dict.fromkeys(names))
    scopes = list(dict.fromkeys(mapped["scope"]))
    layers = sorted(mapped["layers"].unique(), key=_by_number)
    height = max(0.15 * len(order) + 1.0, 2 * (0.3 * len(scopes) + 1.1) if len(mapped) else 1.4)
    # Never narrower than the headings.
    widths = [max(0.55 * len(layers) + 1.4, 4.0)] * bool(len(mapped)) + [5.2] * bool(order)
    with style():
        figure = Figure(figsize=(sum(widths) + 0.4, height), layout="constrained")
        grid = figure.add_gridspec(1, len(widths), width_ratios=widths)
        if len(mapped):
            maps = grid[0, 0].subgridspec(2, 1)
            for row, (patch, heading) in enumerate(_MAPPED.items()):
                axes = figure.add_subplot(maps[row, 0])
                block = mapped[mapped["patch"] == patch]
                rates = block.pivot(index="scope", columns="layers", values="value")
                draw_rates(axes, rates.reindex(index=scopes, columns=layers).rename(
                    columns=in_short))
                axes.set(xlabel="layers", title=f"flip rate: {heading}")
        if order:
            axes = figure.add_subplot(grid[0, -1])
            _draw_list(axes, listed.assign(name=names), order)
            if chance is not None:
                axes.axvline(chance, color=GREY, linestyle="--", linewidth=1.0, zorder=1)
    return figure


def matrix_figure(matrix: pd.DataFrame, title: str) -> Figure:
    """Return a table of rates as a map: constituents of bases down, of sources across."""
    with style():
        height, width = (0.42 * n + 1.5 for n in matrix.shape)
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        draw_rates(axes, matrix, rotation=90.0)
        axes.set(xlabel="source", ylabel="base", title=title)
    return figure


def draw_rates(axes: Axes, rates: pd.DataFrame, rotation: float = 0.0) -> None:
    """Draw rates in [0, 1] as colours and numbers; what is missing stays white."""
    heat_map(axes, rates, Normalize(0.0, 1.0), numbers=True, rotation=rotation)


def _draw_list(axes: Axes, table: pd.DataFrame, order: Sequence[str]) -> None:
    for metric, (color, marker) in _RATES.items():
        rows = table[table["metric"] == metric]
        y = [order.index(name) for name in rows["name"]]
        axes.errorbar(rows["value"], y, xerr=reach(rows), color=color, marker=marker,
                      markersize=3.5, linestyle="", elinewidth=1.0)
    axes.set_yticks(range(len(order)), order, fontsize=7)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel("rate")
    axes.legend(handles=[Line2D([], [], color=color, marker=marker, linestyle="", label=metric)
                         for metric, (color, marker) in _RATES.items()],
                loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)


def name_of(row: object) -> str:
    """Return what was written, then where."""
    what = written({name: getattr(row, name) for name in ("patch", "alpha", "heads",
                                                          "renormalized")})
    site = getattr(row, "site", "code")
    where = f"{getattr(row, 'scope', '')}, layers {in_short(getattr(row, 'layers', ''))}"
    return f"{what}: {where}" + ("" if site == "code" else f", {site}")


def in_short(layers: str) -> str:
    """Return 3-6 for 3,4,5,6, and whatever has gaps, few layers or several parts as it is."""
    _, numbers = _by_number(layers)
    whole = len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1))
    whole = whole and "+" not in layers
    return f"{numbers[0]}-{numbers[-1]}" if whole else layers


def _by_number(layers: str) -> tuple[int, tuple[int, ...]]:
    """Return by what sets of layers are ordered: single ones first, in their order."""
    numbers = tuple(map(int, re.findall(r"\d+", layers)))
    return len(numbers), numbers


def written(named: dict[str, object]) -> str:
    """Return an intervention's patch with whatever is not the ordinary: `steer 2`."""
    alpha = named["alpha"]
    extra = f" {alpha:g}" if isinstance(alpha, float) and not np.isnan(alpha) else ""
    if named["heads"] != "all":
        extra += f", heads {named['heads']}"
    return f"{named['patch']}{extra}{', renormalized' if named['renormalized'] else ''}"
