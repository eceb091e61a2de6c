"""The pictures of several features: scores and gains per layer, a colour per features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import GREY, Figure, category_styles
from latentcode.probes.common.figures import layers_in, name_panels, panels, reach
from latentcode.probes.common.results import distinct, where
from latentcode.probes.decoding.figure import METRIC_NAMES
from latentcode.probes.decoding.naming import parted

MODELS: dict[str, dict[str, Any]] = {
    "trained": {"marker": "o"}, "untrained": {"marker": "o", "markerfacecolor": "white"},
    "shuffled": {"marker": "x", "alpha": 0.35}}
"""How the points of a model are drawn: filled, hollow, and faint for labels of others."""


def scores_figure(table: pd.DataFrame, *, missing: Sequence[str] = ()) -> Figure:
    """Return the scores of `DecodingResult.table`: a row per pair and width, a column per label.

    Dashed is the best constant answer. `missing` names the controls that were left out.
    """
    return _grid(table, ("label", "metric"), lambda kind: f"{kind[0]}\n{METRIC_NAMES[kind[1]]}",
                 "value", ("chance", "best constant answer"),
                 f"without controls: {', '.join(missing)}" if missing else "")


def gains_figure(given: pd.DataFrame) -> Figure:
    """Return the gains of `DecodingResult.given`: a row per pair and width, a column per question.
    """
    return _grid(given.assign(none=0.0), ("label", "given"),
                 lambda kind: f"{kind[0]} given\n{kind[1]}", "gain", ("none", "no gain"),
                 "held-out log loss gained (nats)")


def _grid(
    table: pd.DataFrame, columns: tuple[str, str], titled: Any, value: str,
    line: tuple[str, str], title: str,
) -> Figure:
    check(len(table) > 0, "there are no rows of the chosen metrics to draw", ProbeError)
    table = parted(table.assign(width=table["width"].map(_plain)))
    kinds, places = distinct(table, *columns), distinct(table, "pair", "width")
    layers = layers_in(table)
    feature_sets = list(table["features"].unique())
    colors = {features: color for features, (color, _) in category_styles(feature_sets).items()}
    width = max(2.2, 0.09 * len(layers) * len(feature_sets) + 0.6)
    with panels(len(places), len(kinds), width * len(kinds) + 1.8, 2.1 * len(places) + 0.6, title,
                sharex=True) as (figure, grid):
        for row, (pair, width) in enumerate(places):
            for column, kind in enumerate(kinds):
                block = where(table, pair=pair, width=width,
                              **dict(zip(columns, kind, strict=True)))
                axes = grid[row, column]
                _draw(axes, block, layers, colors, value)
                axes.axhline(block[line[0]].iloc[0], color=GREY, linestyle="--", linewidth=1.0,
                             zorder=1)
        name_panels(grid, [titled(kind) for kind in kinds],
                    [f"{pair}\n{width} dimensions" for pair, width in places], "layer")
        handles = [Line2D([], [], color=color, marker="o", linestyle="", markersize=4, label=name)
                   for name, color in colors.items()]
        handles += [Line2D([], [], color=GREY, linestyle="", markersize=4, label=model,
                           **style)
                    for model, style in MODELS.items() if model in set(table["model"])]
        handles += [Line2D([], [], color=GREY, linestyle="--", label=line[1])]
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def _draw(
    axes: Axes, block: pd.DataFrame, layers: Sequence[int | str], colors: dict[Any, str], value: str
) -> None:
    step = 0.8 / max(len(colors), 1)
    for model, style in MODELS.items():
        for i, (features, color) in enumerate(colors.items()):
            rows = where(block, model=model, features=features)
            x = np.array([layers.index(layer) for layer in rows["layer"]]) + step * (
                i - (len(colors) - 1) / 2)
            axes.errorbar(x, rows[value], yerr=reach(rows, value), color=color, linestyle="",
                          markersize=3.5, elinewidth=0.8, **style)
    axes.set_xticks(range(len(layers)), map(str, layers))
    axes.set_xlim(-0.5, len(layers) - 0.5)


def _plain(width: Any) -> object:
    return "all" if pd.isna(width) else int(width) if isinstance(width, float) else width
