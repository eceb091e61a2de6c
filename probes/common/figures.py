"""What the figures of several questions draw: values per layer, sources side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from latentcode.figures.style import SOURCE_STYLES


def points_per_layer(
    axes: Axes, table: pd.DataFrame, sources: Sequence[str], layers: Sequence[int], *,
    value: str = "value",
) -> None:
    """Draw a column of values with their intervals over the layers, sources side by side."""
    for i, source in enumerate(sources):
        rows = table[table["source"] == source].sort_values("layer")
        color, marker, _ = SOURCE_STYLES[source]
        place = np.array([layers.index(layer) for layer in rows["layer"]])
        x = place + 0.16 * (i - (len(sources) - 1) / 2)
        bars = np.stack([rows[value] - rows["low"], rows["high"] - rows[value]])
        axes.errorbar(x, rows[value], yerr=np.clip(np.nan_to_num(bars), 0.0, None), color=color,
                      marker=marker, markersize=4.0, linestyle="", elinewidth=1.1)
    axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
    axes.set_xlim(-0.5, len(layers) - 0.5)
    axes.set_xlabel("layer")


def source_handles(sources: Sequence[str]) -> list[Line2D]:
    """Return the entries of a legend of sources."""
    return [Line2D([], [], color=SOURCE_STYLES[s][0], marker=SOURCE_STYLES[s][1], linestyle="",
                   markersize=4.5, label=SOURCE_STYLES[s][2]) for s in sources]
