"""The outcome of representational similarity analysis: correlations per layer and across runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure, category_styles
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
)
from latentcode.probes.common.results import TableResult, blocks, distinct, where, with_interval

SCOPES = ("all runs", "within kind")
"""What a correlation is taken over: all runs, or the deviations of runs from their kind."""


@dataclass(frozen=True, repr=False)
class TopographyResult(TableResult):
    """How far the distances of points follow those of tasks: representational similarity analysis.

    table        one row per run, layer, pair, label, features, distance of tasks and metric of
                 points: Spearman's `rho` with its 95 % interval, clustered by combination, `p` and
                 `null_high`, the 95 % quantile when the tasks are permuted
    runs         one row per run: its kind, seeds and `performance` on held-out combinations
    correlation  with four runs or more, Spearman's correlation of rho with performance across
                 them; see `rank_correlation`
    contrasts    one row per run, layer, pair, label, distance and metric: rho of the code less that
                 of the residual stream and of the untrained model; `n` counts units
    settings     everything else that determines the numbers
    """

    FORMAT = "latentcode.topography"
    SHOWS = ("representational similarity analysis (RSA), Spearman correlation of code and task "
             "distances, 95 % interval")
    COLUMNS: ClassVar = {
        "table": ("run", "kind", "layer", "pair", "label", "unit", "features", "distance", "metric",
                  "rho", "low", "high", "p", "null_high", "n_units", "n_pairs"),
        "runs": ("run", "kind", "seed", "split_seed", "metric", "performance"),
        "correlation": ("layer", "pair", "label", "features", "distance", "metric", "scope",
                        "n_runs", "rho", "low", "high", "p", "smallest_p", "detectable"),
        "contrasts": contrast_columns("run", "kind", "layer", "pair", "label", "distance",
                                      "metric", "features")}
    BEST_OF: ClassVar = ("layer", "distance", "metric")

    table: pd.DataFrame
    runs: pd.DataFrame
    correlation: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat()
        flat = self.table[self.table["rho"].isna()][["features", "layer", "pair"]].drop_duplicates()
        notes += [f"Nothing to correlate: the {features} of layer {layer}, {pair}, or the task "
                  "distance, does not vary." for features, layer, pair
                  in flat.itertuples(index=False)]
        lacking = self.runs.loc[self.runs["performance"].isna(), "run"]
        if len(self.runs) > 1 and len(lacking):
            notes.append(f"Without a metric on held-out combinations: {', '.join(lacking)}.")
        for zero in self.settings.get("zero", ()):
            notes.append(f"The {zero['features']} of {zero['run']}, layer {zero['layer']}, "
                         f"{zero['pair']} is zero in {zero['n']} of {zero['of']} instances, which "
                         "have no cosine and are left out of cosine distances.")
        if len(self.correlation):
            notes += [note for scope, rows in self.correlation.groupby("scope", sort=False)
                      for note in _power(str(scope), rows)]
        elif len(self.runs) > 1:
            notes.append(f"{len(self.runs)} runs say nothing about a correlation with performance; "
                         "expected at least 4.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return one row per kind, label, distance, metric and layer: by features, `rho [low, high]
        p` of a single run, else the mean and the range over the runs of a kind."""
        place = ["kind", "label", "distance", "metric", "pair", "layer"]
        rows = []
        for row, block in blocks(self.table, place):
            for features, mine in block.groupby("features", sort=False):
                rho, first = mine["rho"], mine.iloc[0]
                row[str(features)] = (
                    f"{with_interval(first, 'rho')} "
                    f"p={first['p']:.3f}" if len(mine) == 1 else
                    f"{rho.mean():.2f} ({rho.min():.2f} to {rho.max():.2f}, n={len(mine)})")
            rows.append(row)
        return pd.DataFrame(rows)

    def figure(self, *, pair: str | None = None, metric: str = "cosine") -> Figure:
        """Return rho per layer: a row per kind, a column per label and distance of tasks."""
        pair = self.first_pair(pair)
        table = where(self.table, pair=pair, metric=metric)
        return topography_figure(table, f"{pair}, {metric} distance of points")

    def generalization_figure(
        self, *, pair: str | None = None, metric: str = "cosine", layer: int | None = None
    ) -> Figure:
        """Return performance against rho, a point per run, of one layer (the last)."""
        pair = self.first_pair(pair)
        layer = max(self.settings["layers"]) if layer is None else layer
        table, correlation = (where(table, pair=pair, metric=metric, layer=layer)
                              for table in (self.table, self.correlation))
        joined = table.merge(self.runs[["run", "performance"]], on="run")
        overall = where(correlation, scope=SCOPES[0])
        return generalization_figure(joined, overall, self.runs["metric"].iloc[0],
                                     f"layer {layer}, {pair}, {metric} distance of points")

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        more = {"generalization.png": self.generalization_figure()} if len(self.correlation) else {}
        return super().figures() | more


def _power(scope: str, rows: pd.DataFrame) -> list[str]:
    """Return what correlations across runs can show, and how many are small by chance."""
    runs, detectable = f"{rows['n_runs'].max()} runs", rows["detectable"].min()
    notes = []
    if np.isfinite(detectable):
        notes.append(f"Scope {scope}: {runs} find a rank correlation of less than {detectable:.2f} "
                     "less often than four times out of five.")
    able = rows[rows["smallest_p"] < 0.05]
    if len(able) == 0:
        return [*notes, f"Scope {scope}: no p < 0.05 is possible with {runs}."]
    for what, mine in (("the code", able[able["features"] == "code"]),
                       ("its controls", able[able["features"] != "code"])):
        if len(mine):
            notes.append(f"Scope {scope}: of the {len(mine)} correlations of {what}, at most "
                         f"{0.05 * len(mine):.1f} would have p < 0.05 by chance, and "
                         f"{int((mine['p'] < 0.05).sum())} have.")
    return notes


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
