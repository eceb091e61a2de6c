"""The picture of kNN purity: a panel per layer, a line per label."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    panels,
    reach,
)


def knn_purity_figure(table: pd.DataFrame, title: str) -> Figure:
    """Return the purity of each label, the best of the code's last layer at the top.

    table  columns layer, label, features, value, low, high, shuffled, excess; one pair, one `among`

    Markers are features, bars their 95 % intervals; the grey strokes are shuffled labels.
    """
    table = table[np.isfinite(table["value"])]
    check(len(table) > 0, "there are no purities to draw", ProbeError)
    layers, feature_sets = layers_in(table), features_in(table)
    last = table[table["layer"] == layers[-1]].sort_values("excess", ascending=False)
    order = list(dict.fromkeys([*last[last["features"] == "code"]["label"], *table["label"]]))
    names = 0.065 * max(map(len, order)) + 0.3
    with panels(1, len(layers), 1.7 * len(layers) + names, 0.2 * len(order) + 1.4, title,
                sharex=True, sharey=True) as (figure, grid):
        for axes, layer in zip(grid[0], layers, strict=True):
            for i, features in enumerate(feature_sets):
                rows = table[(table["layer"] == layer) & (table["features"] == features)]
                y = np.array([order.index(label) for label in rows["label"]])
                color, marker, _ = FEATURE_STYLES[features]
                axes.errorbar(rows["value"], y + 0.22 * (i - (len(feature_sets) - 1) / 2),
                              xerr=reach(rows), color=color, marker=marker, markersize=3.5,
                              linestyle="", elinewidth=1.0)
                if features == "code":
                    axes.plot(rows["shuffled"], y, color=GREY, marker="|", markersize=9.0,
                              linestyle="", zorder=1)
            axes.set(title=f"layer {layer}", xlim=(-0.03, 1.03))
        grid[0, 0].set_yticks(range(len(order)), order)
        grid[0, 0].set_ylim(len(order) - 0.5, -0.5)
        figure.legend(handles=[*feature_handles(feature_sets), Line2D(
            [], [], color=GREY, marker="|", linestyle="", markersize=9.0,
            label="shuffled labels")], loc="outside lower center", ncols=len(feature_sets) + 1)
    return figure
