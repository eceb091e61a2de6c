"""Maps of heads: layers down, heads across, one for each metric."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from latentcode.errors import ProbeError, check
from latentcode.figures.heat_maps import heat_map, signed_norm
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.heads.tables import by_metric

ACROSS = 4
"""Maps beside each other."""


def maps_figure(table: pd.DataFrame, names: Mapping[str, str], title: str) -> Figure:
    """Return one map per metric; a dot marks heads outside the interval of the control.

    table  columns layer, head, metric, value and `outside`, which is 0 for those within
    names  of metrics in words
    """
    metrics = dict(by_metric(table))
    check(len(metrics) > 0, "there are no metrics to draw", ProbeError)
    across = min(ACROSS, len(metrics))
    down = math.ceil(len(metrics) / across)
    n_layers, n_heads = table["layer"].nunique(), table["head"].nunique()
    width = float(np.clip(0.14 * n_heads, 1.6, 4.0)) + 0.9
    height = float(np.clip(0.14 * n_layers, 1.0, 4.0)) + 0.75
    with panels(down, across, width * across, height * down, title) as (figure, grid):
        for axes in grid.flat[len(metrics):]:
            axes.set_axis_off()
        for axes, (metric, rows) in zip(grid.flat, metrics.items(), strict=False):
            matrix = rows.pivot(index="layer", columns="head", values="value")
            norm = signed_norm(np.nan_to_num(matrix.to_numpy()))
            drawn = heat_map(axes, matrix, norm, fontsize=6.0)
            outside = rows[rows["outside"] != 0]
            place = {layer: row for row, layer in enumerate(matrix.index)}
            axes.plot(outside["head"], [place[layer] for layer in outside["layer"]], ".",
                      color="white", markeredgecolor="black", markeredgewidth=0.4, markersize=3.5)
            axes.set_title(names.get(metric, metric.replace("_", " ")), fontsize=8.0)
            figure.colorbar(drawn, ax=axes, shrink=0.8)
        for axes in grid[:, 0]:
            axes.set_ylabel("layer")
        for axes in grid.flat[max(0, len(metrics) - across):len(metrics)]:  # the lowest of a column
            axes.set_xlabel("head")
    return figure


__all__ = ["maps_figure"]
