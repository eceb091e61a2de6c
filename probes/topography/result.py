"""The outcome of representational similarity analysis: correlations per layer and across runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from latentcode.figures.style import Figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.results import TableResult, blocks, where, with_interval
from latentcode.probes.topography.figure import generalization_figure, topography_figure

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
