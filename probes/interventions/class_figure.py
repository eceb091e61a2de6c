"""The figure of a factorial of sources: whose answer it is, by what was written and where."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latentcode.answers import CLASSES
from latentcode.errors import ProbeError, check
from latentcode.figures.style import PALETTE, Figure, style
from latentcode.probes.interventions.figure import in_short, written

COLOURS: dict[str, str] = dict(zip(
    CLASSES, (PALETTE[4], PALETTE[0], PALETTE[1], PALETTE[3], "#DDDDDD"), strict=True))
"""The colour of each class of answers."""
_ROW = 0.16
"""Inches per bar."""
_GAP = 0.6
"""Bars that would fit above each place."""


def class_figure(table: pd.DataFrame) -> Figure:
    """Return the rates of `CLASSES` as stacked bars (of `InterventionResult.table`).

    Left the sources' patches, one block per place, so that sources can be compared where they were
    written; right all the others. The numbers of instances stand at the right ends.
    """
    # Here: opening a result needs no torch.
    from latentcode.probes.interventions.patches import PATCHES

    table = table[table["metric"].isin(CLASSES)]
    check(len(table) > 0, "the table holds no classes of answers to draw", ProbeError)
    source = table["patch"].map(
        lambda name: name in PATCHES and bool(PATCHES[name].source)) & table["heads"].eq("all")
    parts = [part for part in (table[source], table[~source]) if len(part)]
    bars = [_bars(part) for part in parts]
    with style():
        rows = max(map(_height, bars))
        figure = Figure(figsize=(6.4 * len(parts), _ROW * rows + 1.0), layout="constrained")
        for axes, block in zip(figure.subplots(1, len(bars), squeeze=False)[0], bars,
                               strict=True):
            _draw(axes, block, rows)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=len(CLASSES))
    return figure


def _height(bars: pd.DataFrame) -> float:
    return len(bars) + _GAP * (float(bars["first"].sum()) + 1.0)


def _bars(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per bar, place by place: `name`, `n`, `first` (of its place) and rates."""
    places = ["site", "scope", "layers"]
    rows: list[dict[str, object]] = []
    for place, block in table.groupby(places, sort=False):
        site, scope, layers = map(str, place)
        where = f"{scope}, layers {in_short(layers)}" + ("" if site == "code" else f", {site}")
        keys = ["patch", "alpha", "heads", "renormalized"]
        for number, (_, one) in enumerate(block.groupby(keys, sort=False, dropna=False)):
            what = written({key: one[key].iloc[0] for key in keys})
            rates = dict(zip(one["metric"], one["value"], strict=True))
            rows.append({"name": f"{where}: {what}" if number == 0 else what,
                         "n": int(one["n"].iloc[0]), "first": number == 0, **rates})
    return pd.DataFrame(rows)


def _draw(axes: Axes, bars: pd.DataFrame, rows: float) -> None:
    # A gap above every place.
    y = np.arange(len(bars)) + _GAP * bars["first"].cumsum().to_numpy() + 0.5
    left = np.zeros(len(bars))
    for name, colour in COLOURS.items():
        rates = np.nan_to_num(bars[name].to_numpy(dtype=np.float64))
        axes.barh(y, rates, 0.85, left=left, color=colour, label=name)
        left += rates
    for at, n in zip(y, bars["n"], strict=True):
        axes.annotate(f"{n}", (1.01, at), va="center", fontsize=6)
    axes.set_yticks(y, bars["name"], fontsize=6.5)
    axes.set(xlim=(0.0, 1.08), ylim=(rows, 0.0), xlabel="rate; at the end: instances")
    axes.set_xticks(np.linspace(0.0, 1.0, 6))
    axes.grid(axis="y", visible=False)
