"""The picture of decoding: the score per layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import GREY, SOURCE_STYLES, Figure, style

_METRIC_NAMES = {"accuracy": "accuracy", "macro_f1": "macro F1", "f1": "F1"}


def decoding_figure(table: pd.DataFrame, *, missing: Sequence[str] = ()) -> Figure:
    """Return the score per layer of a decoding table (`DecodingResult.table`).

    One panel per pair and per label and metric, the longer of the two lists across; markers are
    sources, bars their 95 % intervals, the dashed line is the best constant answer. `missing`
    names the controls that were left out, which the figure then says.
    """
    check(len(table) > 0, "the decoding table holds no rows of the chosen metrics", ProbeError)
    kinds = list(table[["label", "metric"]].drop_duplicates().itertuples(index=False, name=None))
    pairs = list(table["pair"].unique())
    layers = sorted(table["layer"].unique().tolist())
    sources = [s for s in SOURCE_STYLES if s in set(table["source"])]
    kinds_across = len(kinds) > len(pairs)
    names = [f"{label}\n{_METRIC_NAMES[metric]}" for label, metric in kinds]
    down, across = (pairs, names) if kinds_across else (names, pairs)
    n_rows, n_columns = len(down), len(across)
    width = max(0.45 * len(layers) + 0.9, _written(across))
    height = max(1.9, _written(down))
    with style():
        figure = Figure(figsize=(width * n_columns + 2.2, height * n_rows + 0.5),
                        layout="constrained")
        grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
        for i, (label, metric) in enumerate(kinds):
            for j, pair in enumerate(pairs):
                row, column = (j, i) if kinds_across else (i, j)
                block = table[(table["label"] == label) & (table["metric"] == metric)
                              & (table["pair"] == pair)]
                _score_axes(grid[row, column], block, sources, layers)
        for name, axes in zip(across, grid[0], strict=True):
            axes.set_title(name)
        for name, axes in zip(down, grid[:, 0], strict=True):
            axes.set_ylabel(name)
        for axes in grid[-1]:
            axes.set_xlabel("layer")
        grid[0, 0].set_xticks(range(len(layers)), [str(layer) for layer in layers])
        grid[0, 0].set_xlim(-0.5, len(layers) - 0.5)
        grid[0, 0].set_ylim(-0.02, 1.02)
        handles = [Line2D([], [], color=SOURCE_STYLES[s][0], marker=SOURCE_STYLES[s][1],
                          linestyle="", label=SOURCE_STYLES[s][2]) for s in sources]
        handles.append(Line2D([], [], color=GREY, linestyle="--", label="best constant answer"))
        figure.legend(handles=handles, loc="outside right upper")
        if missing:
            figure.suptitle(f"without controls: {', '.join(missing)}", fontsize=9, color="#B00000")
    return figure


def _written(names: Sequence[str]) -> float:
    """Return the inches that the longest line of some headings takes."""
    return 0.085 * max(len(line) for name in names for line in name.split("\n"))


def _score_axes(
    axes: Axes, block: pd.DataFrame, sources: Sequence[str], layers: Sequence[int]
) -> None:
    for i, source in enumerate(sources):
        rows = block[block["source"] == source].sort_values("layer")
        color, marker, _ = SOURCE_STYLES[source]
        # Side by side, so that the intervals of one layer do not cover each other.
        x = np.arange(len(layers)) + 0.14 * (i - (len(sources) - 1) / 2)
        # The mean over shuffles can lie outside the interval of skewed scores; bars cannot.
        bars = np.stack([rows["value"] - rows["low"], rows["high"] - rows["value"]])
        axes.errorbar(x, rows["value"], yerr=np.clip(bars, 0.0, None), color=color, marker=marker,
                      markersize=4.5, linestyle="", elinewidth=1.2, capsize=0)
    chance = block.drop_duplicates("layer").sort_values("layer")["chance"].to_numpy()
    axes.step(np.r_[-0.5, np.arange(len(layers)) + 0.5], np.r_[chance[:1], chance], color=GREY,
              linestyle="--", linewidth=1.0, zorder=1)
