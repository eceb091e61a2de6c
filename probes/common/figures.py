"""What the figures of several questions draw: grids of panels, values per layer by features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.panels import heat_map
from latentcode.figures.style import FEATURE_STYLES, GREY, MARKERS, PALETTE, Figure, style
from latentcode.probes.common.results import distinct, parted, where

LETTERS = 13.0
"""Letters of a title that an inch holds."""


def features_in(table: pd.DataFrame) -> list[str]:
    """Return the features of a table in the order in which they are always drawn."""
    return [features for features in FEATURE_STYLES if features in set(table["features"])]


def layers_in(table: pd.DataFrame) -> list[Any]:
    """Return the layers of a table, in rising order; last what stands for all of them."""
    return sorted(table["layer"].unique().tolist(), key=lambda at: (isinstance(at, str), at))


@contextmanager
def panels(
    n_rows: int, n_columns: int, width: float, height: float, title: str = "", **shared: Any
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Yield a figure of so many inches and its grid of axes, to be drawn on in the house style.

    shared  what `Figure.subplots` takes, such as sharex
    """
    with style():
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(n_rows, n_columns, squeeze=False, **shared)
        if title:
            figure.suptitle(fill(title, int(LETTERS * width)), fontsize=9.5)


def name_panels(
    grid: np.ndarray, titles: Sequence[str], ylabels: Sequence[str], xlabels: Sequence[str] | str
) -> None:
    """Write what columns of panels show above the first, what rows show to the left of the first,
    and names of the x axis below the last."""
    below = [xlabels] * len(titles) if isinstance(xlabels, str) else xlabels
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title)
    for axes, name in zip(grid[-1], below, strict=True):
        axes.set_xlabel(name)
    for axes, name in zip(grid[:, 0], ylabels, strict=True):
        axes.set_ylabel(name)


def heat_maps(
    matrices: Mapping[tuple[str, str], pd.DataFrame], norm: Normalize, *, title: str, label: str,
    xlabels: Sequence[str] | str = "", cell: float = 0.13, numbers: bool = False,
) -> Figure:
    """Return matrices on one scale, (name of the row, of the column of panels) -> matrix.

    label  of the colour bar
    cell   inches of a cell; of few cells more
    """
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*matrices, strict=True))
    side = max(1.35, cell * max(map(len, matrices.values())),
               *(0.085 * len(line) for row in rows for line in row.split("\n")))
    beside, below = (0.07 * max(len(str(name)) for matrix in matrices.values() for name in
                                matrix.axes[axis]) for axis in (0, 1))
    with panels(len(rows), len(columns), max(side * len(columns) + beside + 1.8, 4.2),
                side * len(rows) + below + 0.9, title) as (figure, grid):
        for (row, column), matrix in matrices.items():
            axes = grid[rows.index(row), columns.index(column)]
            drawn = heat_map(axes, matrix, norm, numbers=numbers, rotation=0 if numbers else 90)
            axes.set_box_aspect(1.0)
            axes.label_outer()
            if matrix.isna().all(axis=None):
                axes.text(0.5, 0.5, "nothing\nto compare", transform=axes.transAxes, ha="center",
                          va="center", fontsize=8, color=GREY)
        name_panels(grid, columns, rows, xlabels)
        for axes in grid[:, 0]:
            axes.yaxis.label.set_fontsize(8.0)
        figure.colorbar(drawn, ax=grid, label=label, shrink=min(0.6, 2.0 / len(rows)))
    return figure


def reach(table: pd.DataFrame, value: str = "value") -> np.ndarray:
    """Return how far intervals reach down and up from a column of values, [2, row].

    A mean over shuffles can lie outside the interval of skewed scores; bars cannot.
    """
    bars = np.stack([table[value] - table["low"], table["high"] - table[value]])
    return np.clip(np.nan_to_num(bars), 0.0, None)


def scores_figure(
    table: pd.DataFrame, kinds: tuple[str, ...], line: tuple[str, str] | None = None, *,
    value: str = "value", title: str = "", sharey: bool = False,
) -> Figure:
    """Return scores per layer with their intervals, a panel per kind and per pair and width.

    table  columns layer, pair, features, perhaps width, and those that are named here
    kinds  the columns that name a kind, such as label and metric
    line   the column of a dashed line, such as the best constant answer, and its name

    The longer of the two lists runs across. The code and its controls have their own colours;
    other features have one each, the untrained model hollow markers and shuffled labels faint ones.
    """
    check(len(table) > 0, "there are no scores to draw", ProbeError)
    width = table["width"] if "width" in table else pd.Series(np.nan, table.index)
    table = parted(table.assign(name=table["features"], place=[
        pair if pd.isna(w) else f"{pair}\n{int(w)} dimensions"
        for pair, w in zip(table["pair"], width, strict=True)]))
    columns, places = distinct(table, *kinds), [place for place, in distinct(table, "place")]
    names, layers = list(dict.fromkeys(table["name"])), layers_in(table)
    # Colours that stand for the code or a control already would be taken for these.
    free = [color for color in PALETTE if color not in {
        FEATURE_STYLES[name][0] for name in names if name in FEATURE_STYLES}]
    others = {features: (free[i % len(free)], MARKERS[i // len(free) % len(MARKERS)])
              for i, features in enumerate(dict.fromkeys(
                  table.loc[~table["name"].isin(FEATURE_STYLES), "features"]))}
    looks: Mapping[str, Mapping[str, Any]] = {
        "trained": {}, "untrained": {"markerfacecolor": "white"}, "shuffled": {"alpha": 0.35}}
    styles = {}
    for name, features, model in distinct(table, "name", "features", "model"):
        color, marker, words = FEATURE_STYLES.get(name) or (*others[features], name)
        look = {} if name in FEATURE_STYLES else looks[model]
        styles[name] = {"color": color, "marker": marker, "label": words, **look}
    titles = ["\n".join(map(str, kind)) for kind in columns]
    across = len(columns) > len(places)
    rows, headings = (places, titles) if across else (titles, places)
    inches = max(2.0, 0.11 * len(layers) * len(names) + 0.7, *(
        0.085 * len(text) for heading in headings for text in heading.split("\n")))
    tall = max(1.9, *(0.085 * len(text) for heading in rows for text in heading.split("\n")))
    with panels(len(rows), len(headings), inches * len(headings) + 2.2, tall * len(rows) + 0.5,
                title, sharex=True, sharey=sharey) as (figure, grid):
        for i, kind in enumerate(columns):
            for j, place in enumerate(places):
                axes = grid[j, i] if across else grid[i, j]
                block = where(table, place=place, **dict(zip(kinds, kind, strict=True)))
                for k, name in enumerate(names):
                    points = where(block, name=name)
                    x = np.array([layers.index(layer) for layer in points["layer"]])
                    axes.errorbar(x + 0.8 * (k - (len(names) - 1) / 2) / max(len(names), 4),
                                  points[value], yerr=reach(points, value), linestyle="",
                                  markersize=4.0, elinewidth=1.0, **styles[name])
                if line is not None:
                    level = block.groupby("layer")[line[0]].mean()
                    axes.step(np.arange(len(layers) + 1) - 0.5, np.repeat(
                        level.reindex(layers), [2, *[1] * (len(layers) - 1)]), color=GREY,
                        linestyle="--", linewidth=1.0, zorder=1)
                axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
                axes.set_xlim(-0.5, len(layers) - 0.5)
        name_panels(grid, headings, rows, "layer")
        legend = [Line2D([], [], linestyle="", markersize=4.5, **style) for style in
                  styles.values()]
        if line is not None:
            legend.append(Line2D([], [], color=GREY, linestyle="--", label=line[1]))
        figure.legend(handles=legend, loc="outside right upper")
    return figure
