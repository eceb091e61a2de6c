"""Pictures of alignment: layers against layers, and scores of transferred probes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pandas as pd
from matplotlib.colors import Normalize

from latentcode.errors import ProbeError, check
from latentcode.figures.heat_maps import heat_map
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure, category_styles
from latentcode.probes.common.figures import features_in, layers_in, name_panels, panels
from latentcode.probes.common.results import distinct, where

HIGHEST = {"cka": 1.0, "procrustes": 2.0}
"""Top of the colour scale of each measure."""


def layers_figure(table: pd.DataFrame, title: str, measure: str) -> Figure:
    """Return layers of A against layers of B: a row per set of features, a column per two kinds.

    table  columns run_a, run_b, kind_a, kind_b, features, layer_a, layer_b, value; the mean over
           pairs of runs is drawn and written
    """
    check(len(table) > 0, "there are no rows to draw", ProbeError)
    kinds = distinct(table, "kind_a", "kind_b")
    feature_sets = features_in(table)
    n_layers = table["layer_a"].nunique()
    side = max(1.7, 0.36 * n_layers)
    with panels(len(feature_sets), len(kinds), max(side * len(kinds) + 1.6, 4.8),
                side * len(feature_sets) + 0.9, title) as (figure, grid):
        norm = Normalize(0.0, HIGHEST[measure])
        titles = []
        for axes, (features, (a, b)) in zip(grid.flat, product(feature_sets, kinds), strict=True):
            block = where(table, features=features, kind_a=a, kind_b=b)
            matrix = block.pivot_table(index="layer_a", columns="layer_b", values="value",
                                       dropna=False)
            drawn = heat_map(axes, matrix, norm, numbers=True)
            axes.set_box_aspect(1.0)
            n = len(block[["run_a", "run_b"]].drop_duplicates())
            titles.append(f"{a} (down), {b}\n{n} {'pair' if n == 1 else 'pairs'} of runs")
        name_panels(grid, titles[:len(kinds)],
                    [f"{FEATURE_STYLES[features][2]}\nlayer" for features in feature_sets],
                    [f"layer of {b}" for _, b in kinds])
        figure.colorbar(drawn, ax=grid, label=measure, shrink=0.6)
    return figure


def transfer_figure(table: pd.DataFrame, alignments: Sequence[str], title: str) -> Figure:
    """Return the score of transferred probes per layer: features down, two kinds across.

    table  columns run_a, run_b, kind_a, kind_b, features, layer, alignment, metric, value, chance;
           a line per alignment is the mean over pairs of runs, its band their range
    """
    check(len(table) > 0, "there are no rows to draw", ProbeError)
    kinds = distinct(table, "kind_a", "kind_b")
    feature_sets = features_in(table)
    layers = layers_in(table)
    looks = category_styles(list(alignments))
    with panels(len(feature_sets), len(kinds), max(2.2 * len(kinds) + 2.0, 6.4),
                1.9 * len(feature_sets) + 0.5, title, sharex=True, sharey=True) as (figure, grid):
        for axes, (features, (a, b)) in zip(grid.flat, product(feature_sets, kinds), strict=True):
            block = where(table, features=features, kind_a=a, kind_b=b)
            for name, (color, marker) in looks.items():
                values = block[block["alignment"] == name].groupby("layer")["value"]
                axes.fill_between(range(len(layers)), values.min(), values.max(), color=color,
                                  alpha=0.12, linewidth=0)
                axes.plot(range(len(layers)), values.mean(), color=color, marker=marker,
                          markersize=4, linestyle=":" if "random" in str(name) else "-",
                          label=str(name))
            axes.axhline(block["chance"].mean(), color=GREY, linestyle="--", linewidth=1.0,
                         label="best constant answer")
            axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
            axes.set_ylim(-0.02, 1.02)
        metric = table["metric"].iloc[0]
        name_panels(grid, [f"probe of {a},\ncodes of {b}" for a, b in kinds],
                    [f"{FEATURE_STYLES[features][2]}\n{metric}" for features in feature_sets],
                    "layer")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper")
    return figure
