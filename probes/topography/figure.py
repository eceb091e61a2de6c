"""Pictures of representational similarity analysis: per layer, and against performance."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure, category_styles
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
)
from latentcode.probes.common.results import distinct, where, with_interval


def topography_figure(table: pd.DataFrame, title: str) -> Figure:
    """Return rho per layer: a row per kind, a column per label and distance of tasks.

    table  columns run, kind, layer, label, unit, features, distance, rho, low, high, null_high; one
           pair and one metric. Several runs of a kind stand in one panel. The grey line is the
           95 % quantile under permuted tasks, of the code and averaged over runs
    """
    check(len(table) > 0, "there are no rows to draw", ProbeError)
    kinds = list(table["kind"].unique())
    columns = distinct(table, "label", "unit", "distance")
    feature_sets = features_in(table)
    layers = layers_in(table)
    with panels(len(kinds), len(columns), 1.75 * len(columns) + 0.8, 1.9 * len(kinds) + 0.8, title,
                sharey=True) as (figure, grid):
        for i, kind in enumerate(kinds):
            for j, (label, _, distance) in enumerate(columns):
                axes = grid[i, j]
                block = where(table, kind=kind, label=label, distance=distance)
                for _, run in block.groupby("run", sort=False):
                    points_per_layer(axes, run, feature_sets, layers, value="rho")
                null = block[block["features"] == "code"].groupby("layer")["null_high"].mean()
                axes.step([layers.index(layer) for layer in null.index], null.to_numpy(),
                          where="mid", color=GREY, linestyle="--", linewidth=1.0, zorder=1)
                axes.axhline(0.0, color=GREY, linewidth=0.6)
        name_panels(grid, _titles(columns), [f"{kind}\nSpearman's ρ" for kind in kinds], "layer")
        handles = [*feature_handles(feature_sets),
                   Line2D([], [], color=GREY, linestyle="--", label="95 % of permuted tasks")]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def generalization_figure(
    table: pd.DataFrame, correlation: pd.DataFrame, metric: str, title: str
) -> Figure:
    """Return performance on held-out combinations against rho, a point per run.

    table        columns run, kind, label, unit, features, distance, rho, performance
    correlation  columns label, features, distance, n_runs, rho, low, high: stated in each panel
    """
    check(len(table) > 0, "there are no runs to draw", ProbeError)
    columns = distinct(table, "label", "unit", "distance")
    feature_sets = features_in(table)
    kinds = category_styles(list(table["kind"].unique()))
    with panels(len(feature_sets), len(columns), 1.85 * len(columns) + 0.8,
                1.85 * len(feature_sets) + 0.9,
                title, sharex="col", sharey=True) as (figure, grid):
        for i, features in enumerate(feature_sets):
            for j, (label, _, distance) in enumerate(columns):
                axes = grid[i, j]
                place = {"label": label, "distance": distance, "features": features}
                for kind, (color, marker) in kinds.items():
                    mine = where(table, kind=kind, **place)
                    axes.scatter(mine["rho"], mine["performance"], color=color, marker=marker,
                                 s=22, linewidths=0)
                stated = "".join(f"ρ = {with_interval(r, 'rho')}"
                                 for r in where(correlation, **place).itertuples())
                axes.text(0.5, 1.02, stated, transform=axes.transAxes, ha="center", fontsize=8)
        name_panels(grid, [f"{title}\n" for title in _titles(columns)],
                    [f"{FEATURE_STYLES[features][2]}\nOOD {metric}" for features in feature_sets],
                    "RSA: Spearman's ρ")
        handles = [Line2D([], [], color=color, marker=marker, linestyle="", label=str(kind))
                   for kind, (color, marker) in kinds.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _titles(columns: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return what a column shows, from its label, unit and distance of tasks."""
    return [f"{distance}\n{unit} of {label}" if unit == "means" else f"{distance}\n{unit}"
            for label, unit, distance in columns]
