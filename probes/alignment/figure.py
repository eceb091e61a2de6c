"""Pictures of alignment: layers against layers, and scores of transferred probes."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.colors import Normalize

from latentcode.errors import ProbeError, check
from latentcode.figures.heat_maps import heat_map
from latentcode.figures.style import GREY, SOURCE_STYLES, Figure, category_styles, style

HIGHEST = {"cka": 1.0, "procrustes": 2.0}
"""Top of the colour scale of each measure."""


def layers_figure(table: pd.DataFrame, title: str, measure: str) -> Figure:
    """Return layers of A against layers of B: a row per source, a column per two kinds.

    table  columns run_a, run_b, kind_a, kind_b, source, layer_a, layer_b, value; the mean over
           pairs of runs is drawn and written
    """
    check(len(table) > 0, "there are no rows to draw", ProbeError)
    kinds = list(table[["kind_a", "kind_b"]].drop_duplicates().itertuples(index=False, name=None))
    sources = [s for s in SOURCE_STYLES if s in set(table["source"])]
    n_layers = table["layer_a"].nunique()
    side = max(1.7, 0.36 * n_layers)
    with style():
        figure = Figure(figsize=(max(side * len(kinds) + 1.6, 4.8), side * len(sources) + 0.9),
                        layout="constrained")
        grid = figure.subplots(len(sources), len(kinds), squeeze=False)
        norm = Normalize(0.0, HIGHEST[measure])
        for i, source in enumerate(sources):
            for j, (a, b) in enumerate(kinds):
                axes = grid[i, j]
                block = table[(table["source"] == source) & (table["kind_a"] == a)
                              & (table["kind_b"] == b)]
                matrix = block.pivot_table(index="layer_a", columns="layer_b", values="value",
                                           dropna=False)
                drawn = heat_map(axes, matrix, norm, numbers=True)
                axes.set_box_aspect(1.0)
                n = len(block[["run_a", "run_b"]].drop_duplicates())
                if i == 0:
                    axes.set_title(f"{a} (down), {b}\n{n} {'pair' if n == 1 else 'pairs'} of runs")
                if i == len(sources) - 1:
                    axes.set_xlabel(f"layer of {b}")
                if j == 0:
                    axes.set_ylabel(f"{SOURCE_STYLES[source][2]}\nlayer")
        figure.colorbar(drawn, ax=grid, label=measure, shrink=0.6)
        figure.suptitle(title, fontsize=9.5)
    return figure


def transfer_figure(table: pd.DataFrame, alignments: Sequence[str], title: str) -> Figure:
    """Return the score of transferred probes per layer: a row per source, two kinds across.

    table  columns run_a, run_b, kind_a, kind_b, source, layer, alignment, metric, value, chance;
           a line per alignment is the mean over pairs of runs, its band their range
    """
    check(len(table) > 0, "there are no rows to draw", ProbeError)
    kinds = list(table[["kind_a", "kind_b"]].drop_duplicates().itertuples(index=False, name=None))
    sources = [s for s in SOURCE_STYLES if s in set(table["source"])]
    layers = sorted(table["layer"].unique().tolist())
    looks = category_styles(list(alignments))
    with style():
        figure = Figure(figsize=(max(2.2 * len(kinds) + 2.0, 6.4), 1.9 * len(sources) + 0.5),
                        layout="constrained")
        grid = figure.subplots(len(sources), len(kinds), squeeze=False, sharex=True, sharey=True)
        for i, source in enumerate(sources):
            for j, (a, b) in enumerate(kinds):
                axes = grid[i, j]
                block = table[(table["source"] == source) & (table["kind_a"] == a)
                              & (table["kind_b"] == b)]
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
                if i == 0:
                    axes.set_title(f"probe of {a},\ncodes of {b}")
                if i == len(sources) - 1:
                    axes.set_xlabel("layer")
                if j == 0:
                    axes.set_ylabel(f"{SOURCE_STYLES[source][2]}\n{block['metric'].iloc[0]}")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper")
        figure.suptitle(title, fontsize=9.5)
    return figure
