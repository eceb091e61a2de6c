"""The picture of decoding: the score per layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import GREY, Figure
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
)
from latentcode.probes.common.results import distinct, where

METRIC_NAMES = {"accuracy": "accuracy", "macro_f1": "macro F1", "f1": "F1",
                "balanced_accuracy": "balanced accuracy", "log_loss": "log loss (nats)"}
"""Metrics in words; log losses are in results of earlier versions alone."""


def decoding_figure(table: pd.DataFrame, *, missing: Sequence[str] = ()) -> Figure:
    """Return the score per layer of a decoding table (`DecodingResult.table`).

    One panel per pair and per label and metric, the longer of the two lists across; markers are
    features, bars their 95 % intervals, the dashed line is the best constant answer. `missing`
    names the controls that were left out, which the figure then says.
    """
    check(len(table) > 0, "the decoding table holds no rows of the chosen metrics", ProbeError)
    kinds = distinct(table, "label", "metric")
    pairs = list(table["pair"].unique())
    layers = layers_in(table)
    feature_sets = features_in(table)
    kinds_across = len(kinds) > len(pairs)
    names = [f"{label}\n{METRIC_NAMES[metric]}" for label, metric in kinds]
    down, across = (pairs, names) if kinds_across else (names, pairs)
    width = max(0.45 * len(layers) + 0.9, _written(across))
    height = max(1.9, _written(down))
    with panels(len(down), len(across), width * len(across) + 2.2, height * len(down) + 0.5,
                sharex=True, sharey=True) as (figure, grid):
        for i, (label, metric) in enumerate(kinds):
            for j, pair in enumerate(pairs):
                row, column = (j, i) if kinds_across else (i, j)
                block = where(table, label=label, metric=metric, pair=pair)
                axes = grid[row, column]
                points_per_layer(axes, block, feature_sets, layers)
                chance = block.drop_duplicates("layer").sort_values("layer")["chance"].to_numpy()
                axes.step(np.r_[-0.5, np.arange(len(layers)) + 0.5], np.r_[chance[:1], chance],
                          color=GREY, linestyle="--", linewidth=1.0, zorder=1)
        grid[0, 0].set_ylim(-0.02, 1.02)
        name_panels(grid, across, down, "layer")
        figure.legend(handles=[
            *feature_handles(feature_sets),
            Line2D([], [], color=GREY, linestyle="--", label="best constant answer")],
            loc="outside right upper")
        if missing:
            figure.suptitle(f"without controls: {', '.join(missing)}", fontsize=9, color="#B00000")
    return figure


def _written(names: Sequence[str]) -> float:
    """Return the inches that the longest line of some headings takes."""
    return 0.085 * max(len(line) for name in names for line in name.split("\n"))
