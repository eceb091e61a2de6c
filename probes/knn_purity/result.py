"""The outcome: the purity of nearest neighbours beside its controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    panels,
    reach,
)
from latentcode.probes.common.results import TableResult, blocks, where, with_interval
from latentcode.probes.knn_purity.purity import ALL, MOST_POINTS, MOST_QUERIES, OTHER

SUMMED_UP = 5
"""Labels of a layer and pair that the summary shows: those of the largest excess."""


@dataclass(frozen=True, repr=False)
class KNNPurityResult(TableResult):
    """Which labels the nearest neighbours of a code share, beside controls.

    table     one row per layer, pair, label, features and `among` ("all" neighbours, or those "of
              other combinations"): the purity `value` with its 95 % interval `low`, `high`
              clustered by combination, what labels give that were `shuffled` among the cells of
              equal combination and value (mean, `spread` as standard deviation), the `excess` over
              that, how many `values` the label has, and on how many instances and combinations.
              NaN where no value occurs in two combinations
    contrasts one row per layer, pair, label and `among`: the purity of the code less that of
              shuffled labels (their mean, so that it is the `excess`), of the residual stream and
              of the untrained model
    settings  everything else that determines the numbers

    Features: `code`, `residual`, `untrained`.
    """

    FORMAT = "latentcode.separation"
    SHOWS = ("kNN purity, the share of nearest neighbours with the same value, "
             f"the {SUMMED_UP} best labels")
    COLUMNS: ClassVar = {
        "table": ("layer", "pair", "label", "features", "among", "values", "value", "low", "high",
                  "shuffled", "spread", "excess", "n", "n_combinations"),
        "contrasts": contrast_columns("layer", "pair", "label", "among", "features")}
    TOLD: ClassVar = {"among": (ALL,)}

    table: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat()
        if self.settings["cut"]:
            notes.append("Measurements are cut at their median, above it or not: "
                         f"{', '.join(self.settings['cut'])}.")
        notes += [f"The {place} is the same in all instances, and separates nothing."
                  for place in self.settings["constant"]]
        n = self.settings["codes"]["n"]
        if self.settings["queries"] < n:
            notes.append(f"Of {n:,} instances the neighbours of {self.settings['queries']:,} are "
                         f"looked for among {self.settings['points']:,} (at most {MOST_QUERIES:,} "
                         f"and {MOST_POINTS:,}).")
        if self.settings["k"] > (most := (self.settings["points"] - 1) // 2):
            notes.append(f"k is {most}, not {self.settings['k']}, of {self.settings['points']} "
                         "points.")
        return tuple(notes)

    def best(self, *, layer: int, pair: str, among: str = ALL) -> pd.DataFrame:
        """Return the rows of the code of a layer and pair, the largest excess first."""
        rows = where(self.table, layer=layer, pair=pair, features="code", among=among)
        return rows.sort_values("excess", ascending=False, kind="stable", ignore_index=True)

    def summary(self) -> pd.DataFrame:
        """Return the best labels of each pair and layer, and `value [low, high]` by features."""
        rows = []
        codes = where(self.table, features="code", among=ALL)
        for place, block in blocks(codes, ("pair", "layer")):
            for label in self.best(**place)["label"][:SUMMED_UP]:
                mine = where(self.table, **place, label=label)
                row = {**place, "label": label}
                row |= {str(found.features): with_interval(found)
                        for found in where(mine, among=ALL).itertuples()}
                row["shuffled"] = f"{block.set_index('label').loc[label, 'shuffled']:.2f}"
                for found in where(mine, features="code", among=OTHER).itertuples():
                    row[OTHER] = with_interval(found)
                rows.append(row)
        return pd.DataFrame(rows).fillna("")

    def figure(self, *, pair: str | None = None, among: str = ALL) -> Figure:
        """Return a panel per layer: the purity of labels by features, and of shuffled labels."""
        pair = self.first_pair(pair)
        return knn_purity_figure(
            where(self.table, pair=pair, among=among),
            f"share of the {self.settings['k']} nearest neighbours with the same value"
            + ("" if among == ALL else f", {among}") + f"; {pair}")


def knn_purity_figure(table: pd.DataFrame, title: str) -> Figure:
    """Return the purity of each label, the best of the code's last layer at the top.

    table  columns layer, label, features, value, low, high, shuffled, excess; one pair, one `among`

    Markers are features, bars their 95 % intervals; the grey strokes are shuffled labels.
    """
    table = table[np.isfinite(table["value"])]
    check(len(table) > 0, "there are no purities to draw", ProbeError)
    layers, feature_sets = layers_in(table), features_in(table)
    last = table[table["layer"] == layers[-1]].sort_values("excess", ascending=False)
    order = list(dict.fromkeys([*last[last["features"] == "code"]["label"], *table["label"]]))
    names = 0.065 * max(map(len, order)) + 0.3
    with panels(1, len(layers), 1.7 * len(layers) + names, 0.2 * len(order) + 1.4, title,
                sharex=True, sharey=True) as (figure, grid):
        for axes, layer in zip(grid[0], layers, strict=True):
            for i, features in enumerate(feature_sets):
                rows = table[(table["layer"] == layer) & (table["features"] == features)]
                y = np.array([order.index(label) for label in rows["label"]])
                color, marker, _ = FEATURE_STYLES[features]
                axes.errorbar(rows["value"], y + 0.22 * (i - (len(feature_sets) - 1) / 2),
                              xerr=reach(rows), color=color, marker=marker, markersize=3.5,
                              linestyle="", elinewidth=1.0)
                if features == "code":
                    axes.plot(rows["shuffled"], y, color=GREY, marker="|", markersize=9.0,
                              linestyle="", zorder=1)
            axes.set(title=f"layer {layer}", xlim=(-0.03, 1.03))
        grid[0, 0].set_yticks(range(len(order)), order)
        grid[0, 0].set_ylim(len(order) - 0.5, -0.5)
        figure.legend(handles=[*feature_handles(feature_sets), Line2D(
            [], [], color=GREY, marker="|", linestyle="", markersize=9.0,
            label="shuffled labels")], loc="outside lower center", ncols=len(feature_sets) + 1)
    return figure
