"""Pictures of topographic similarity: per layer, and against performance across runs."""

from __future__ import annotations

import pandas as pd
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import GREY, SOURCE_STYLES, Figure, category_styles, style
from latentcode.probes.common.figures import points_per_layer, source_handles
from latentcode.probes.common.results import where


def topography_figure(table: pd.DataFrame, title: str) -> Figure:
    """Return rho per layer: a row per kind, a column per label and distance of tasks.

    table  columns run, kind, layer, label, unit, source, distance, rho, low, high, null_high; one
           pair and one metric. Several runs of a kind stand in one panel. The grey line is the
           95 % quantile under permuted tasks, of the code and averaged over runs
    """
    check(len(table) > 0, "there are no rows to draw", ProbeError)
    kinds = list(table["kind"].unique())
    columns = list(table[["label", "unit", "distance"]].drop_duplicates().itertuples(
        index=False, name=None))
    sources = [s for s in SOURCE_STYLES if s in set(table["source"])]
    layers = sorted(table["layer"].unique().tolist())
    with style():
        figure = Figure(figsize=(1.75 * len(columns) + 0.8, 1.9 * len(kinds) + 0.8),
                        layout="constrained")
        grid = figure.subplots(len(kinds), len(columns), squeeze=False, sharey=True)
        for i, kind in enumerate(kinds):
            for j, (label, unit, distance) in enumerate(columns):
                axes = grid[i, j]
                block = where(table, kind=kind, label=label, distance=distance)
                for _, run in block.groupby("run", sort=False):
                    points_per_layer(axes, run, sources, layers, value="rho")
                null = block[block["source"] == "code"].groupby("layer")["null_high"].mean()
                axes.step([layers.index(layer) for layer in null.index], null.to_numpy(),
                          where="mid", color=GREY, linestyle="--", linewidth=1.0, zorder=1)
                axes.axhline(0.0, color=GREY, linewidth=0.6)
                if i == 0:
                    axes.set_title(f"{distance}\n{unit} of {label}" if unit == "means"
                                   else f"{distance}\n{unit}")
                if i < len(kinds) - 1:
                    axes.set_xlabel("")
                if j == 0:
                    axes.set_ylabel(f"{kind}\nSpearman's ρ")
        handles = [*source_handles(sources),
                   Line2D([], [], color=GREY, linestyle="--", label="95 % of permuted tasks")]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle(title, fontsize=9.5)
    return figure


def generalization_figure(
    table: pd.DataFrame, correlation: pd.DataFrame, metric: str, title: str
) -> Figure:
    """Return performance on held-out combinations against rho, a point per run.

    table        columns run, kind, label, unit, source, distance, rho, performance
    correlation  columns label, source, distance, n_runs, rho, low, high: stated in each panel
    """
    check(len(table) > 0, "there are no runs to draw", ProbeError)
    columns = list(table[["label", "unit", "distance"]].drop_duplicates().itertuples(
        index=False, name=None))
    sources = [s for s in SOURCE_STYLES if s in set(table["source"])]
    kinds = category_styles(list(table["kind"].unique()))
    with style():
        figure = Figure(figsize=(1.85 * len(columns) + 0.8, 1.85 * len(sources) + 0.9),
                        layout="constrained")
        grid = figure.subplots(len(sources), len(columns), squeeze=False, sharex="col",
                               sharey=True)
        for i, source in enumerate(sources):
            for j, (label, unit, distance) in enumerate(columns):
                axes = grid[i, j]
                place = {"label": label, "distance": distance, "source": source}
                for kind, (color, marker) in kinds.items():
                    mine = where(table, kind=kind, **place)
                    axes.scatter(mine["rho"], mine["performance"], color=color, marker=marker,
                                 s=22, linewidths=0)
                stated = "".join(f"ρ = {r.rho:.2f} [{r.low:.2f}, {r.high:.2f}]"
                                 for r in where(correlation, **place).itertuples())
                named = f"{distance}\n{unit} of {label}" if unit == "means" else (
                    f"{distance}\n{unit}")
                axes.set_title(f"{named}\n{stated}" if i == 0 else stated, fontsize=8)
                if i == len(sources) - 1:
                    axes.set_xlabel("topographic similarity")
                if j == 0:
                    axes.set_ylabel(f"{SOURCE_STYLES[source][2]}\nOOD {metric}")
        handles = [Line2D([], [], color=color, marker=marker, linestyle="", label=str(kind))
                   for kind, (color, marker) in kinds.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        figure.suptitle(title, fontsize=9.5)
    return figure
