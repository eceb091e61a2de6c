"""What the figures of several questions draw: grids of panels, values per layer by features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from latentcode.figures.style import FEATURE_STYLES, Figure, style


def features_in(table: pd.DataFrame) -> list[str]:
    """Return the features of a table in the order in which they are always drawn."""
    return [features for features in FEATURE_STYLES if features in set(table["features"])]


def layers_in(table: pd.DataFrame) -> list[Any]:
    """Return the layers of a table, in rising order; last what stands for all of them."""
    return sorted(table["layer"].unique().tolist(), key=lambda one: (isinstance(one, str), one))


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
            figure.suptitle(title, fontsize=9.5)


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


def reach(table: pd.DataFrame, value: str = "value") -> np.ndarray:
    """Return how far intervals reach down and up from a column of values, [2, row].

    A mean over shuffles can lie outside the interval of skewed scores; bars cannot.
    """
    bars = np.stack([table[value] - table["low"], table["high"] - table[value]])
    return np.clip(np.nan_to_num(bars), 0.0, None)


def points_per_layer(
    axes: Axes, table: pd.DataFrame, feature_sets: Sequence[str], layers: Sequence[int], *,
    value: str = "value",
) -> None:
    """Draw a column of values with their intervals over the layers, features side by side."""
    for i, features in enumerate(feature_sets):
        rows = table[table["features"] == features].sort_values("layer")
        color, marker, _ = FEATURE_STYLES[features]
        place = np.array([layers.index(layer) for layer in rows["layer"]])
        x = place + 0.16 * (i - (len(feature_sets) - 1) / 2)
        axes.errorbar(x, rows[value], yerr=reach(rows, value), color=color, marker=marker,
                      markersize=4.0, linestyle="", elinewidth=1.1)
    axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
    axes.set_xlim(-0.5, len(layers) - 0.5)


def feature_handles(feature_sets: Sequence[str]) -> list[Line2D]:
    """Return the entries of a legend of features."""
    return [Line2D([], [], color=FEATURE_STYLES[s][0], marker=FEATURE_STYLES[s][1], linestyle="",
                   markersize=4.5, label=FEATURE_STYLES[s][2]) for s in feature_sets]
