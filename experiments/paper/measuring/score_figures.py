"""The picture of scores per layer: codes beside their controls, a panel per kind of attention."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from latentcode.experiments.paper.measuring.over_runs import over_runs
from latentcode.experiments.paper.measuring.probe_scores import ALL
from latentcode.experiments.paper.reproduction import KIND_TITLES
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
)
from latentcode.probes.common.results import where


def scores_figure(
    table: pd.DataFrame, ylabel: str, *, rows: Mapping[str, str] | None = None, title: str = ""
) -> Figure:
    """Return scores on held-out combinations over layers, a column per kind.

    table  of `probe_scores`, with `kind`, and with `inputs` where there are `rows`
    rows   value of `inputs` -> what the row of panels shows

    Small dots are single classes of the code; the dashed line is the best constant answer. What
    is the same for all instances in every run is left out.
    """
    rows = rows or {}
    table = table[(table["split"] == "ood") & table["against"].isna()]
    whole = table[table["class"] == ALL]
    classes = table[(table["class"] != ALL) & (table["features"] == "code")]
    kinds = [kind for kind in KIND_TITLES if kind in set(table["kind"])]
    layers, feature_sets = layers_in(table), features_in(table)
    per_panel = max(1.7, 0.42 * len(layers) + 0.7)
    with panels(max(len(rows), 1), len(kinds), per_panel * len(kinds) + 2.1,
                2.1 * max(len(rows), 1) + 0.5, title, sharex=True, sharey=True) as (figure, grid):
        for line, inputs in zip(grid, rows or [None], strict=True):
            for kind, axes in zip(kinds, line, strict=True):
                chosen = {"kind": kind} | ({} if inputs is None else {"inputs": inputs})
                block, dots = where(whole, **chosen), where(classes, **chosen)
                points_per_layer(axes, over_runs(of_varying(block), ["layer", "features"]),
                                 feature_sets, layers)
                means = of_varying(dots).groupby(
                    ["layer", "class"], sort=False)["value"].mean().reset_index()
                left = 0.16 * (len(feature_sets) - 1) / 2
                axes.scatter([layers.index(layer) - left - 0.13 for layer in means["layer"]],
                             means["value"], s=5, color=FEATURE_STYLES["code"][0], alpha=0.45,
                             linewidths=0)
                level = block.groupby("layer")["chance"].mean().reindex(layers).to_numpy()
                axes.step(np.r_[-0.5, np.arange(len(layers)) + 0.5], np.r_[level[:1], level],
                          color=GREY, linestyle="--", linewidth=1.0, zorder=1)
        grid[0, 0].set_ylim(-0.02, 1.02)
        name_panels(grid, [KIND_TITLES[kind] for kind in kinds],
                    [f"{ylabel}\n{name}" for name in rows.values()] or [ylabel], "layer")
        handles = [*feature_handles(feature_sets),
                   Line2D([], [], color=GREY, linestyle="--", label="best constant answer")]
        if len(classes):
            handles.insert(1, Line2D([], [], color=FEATURE_STYLES["code"][0], marker=".",
                                     linestyle="", alpha=0.6, label="code, one class"))
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def of_varying(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of layers and features that vary between instances in some run.

    A run in which they do not counts, too, or the mean would be over the others alone.
    """
    return table[table.groupby(["layer", "features"])["varies"].transform("any").astype(bool)]
