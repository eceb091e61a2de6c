"""The outcome of distributed alignment search: classes of answers, learning curves, a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.figures import reach
from latentcode.probes.common.results import TableResult, blocks, where, with_interval

SOURCE = "operation+operands"
"""The source that searches are trained with, and that tells the classes apart."""
_SEARCHES = {"trained": (PALETTE[0], "o"), "shuffled": (PALETTE[1], "s"),
             "untrained": (PALETTE[2], "^"), "random": (GREY, "v")}


@dataclass(frozen=True, repr=False)
class DASResult(TableResult):
    """What came of a source's coordinates in subspaces of an activation, on held-out combinations.

    Searches: `trained` towards the objective; `shuffled`, the same with the targets of other
    training pairs; `untrained`, the same in the model's initial weights, over all pairs; `random`,
    a subspace that was drawn; `whole`, all dimensions (its `rank` is their number).

    table    one row per objective (`none` where nothing was trained), search, rank, source and
             class of answers (`CLASSES`): `value`, the rate, its 95 % interval `low`, `high`
             clustered by combination, instances `n` and combinations
    curves   one row per objective, search, rank and window of steps that ends at `step`: the mean
             `loss` (cross-entropy in nats, or squared error)
    contrasts  one row per objective, rank, source and class: the rate of the `trained` search less
             that of each other search of the same rank and of all dimensions, over the pairs that
             both count
    settings everything else that determines the numbers
    """

    FORMAT = "latentcode.subspaces"
    SHOWS = ("distributed alignment search: classes of answers, sources with another operation and "
             "other operands")
    COLUMNS: ClassVar = {
        "table": ("objective", "search", "rank", "source", "class", "value", "low", "high", "n",
                  "n_combinations"),
        "curves": ("objective", "search", "rank", "step", "loss"),
        "contrasts": contrast_columns("objective", "rank", "source", "class", "search")}
    BEST_OF: ClassVar = ("rank",)
    TOLD: ClassVar = {"source": (SOURCE,), "class": ("operation", "operands")}

    table: pd.DataFrame
    curves: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        s = self.settings
        missing = [name for name in ("shuffled", "untrained")
                   if name not in set(self.table["search"])]
        return (f"Trained on {s['n_train_known']} pairs of training combinations, scored on "
                f"{s['n_known']} of {s['split']}, whose four answers differ and which the model "
                "answers.",
                *([f"Without controls: {', '.join(missing)}."] if missing else []))

    def summary(self) -> pd.DataFrame:
        """Return one row per search and rank, and the rate of each class with its interval."""
        rows = []
        told_apart = where(self.table, source=SOURCE)
        for named, block in blocks(told_apart, ("objective", "search", "rank")):
            rates = {row["class"]: with_interval(row) for _, row in block.iterrows()}
            rows.append({**named, **rates, "n": int(block["n"].iloc[0])})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Return the rates of each objective's class over ranks, and the learning curves."""
        return das_figure(where(self.table, source=SOURCE), self.curves,
                          self.settings["objectives"])


def das_figure(
    table: pd.DataFrame, curves: pd.DataFrame, objectives: Sequence[str]
) -> Figure:
    """Return the rate of each objective's class over ranks, and below the losses over steps.

    A line per search; the dashed line is the rate where the whole activation is written; bars are
    95 % intervals.
    """
    with style():
        columns = objectives or ("operation",)
        figure = Figure(figsize=(4.1 * len(columns), 5.2), layout="constrained")
        grid = figure.subplots(2, len(columns), squeeze=False)
        for column, objective in enumerate(columns):
            rates, losses = grid[:, column]
            draw_rates_by_rank(rates, table[table["objective"].isin([objective, "none"])
                                            & table["class"].eq(objective)])
            rates.set(ylabel=f"rate of {objective}")
            of_objective = curves[curves["objective"] == objective]
            for named, block in blocks(of_objective, ("search", "rank")):
                losses.plot(block["step"], block["loss"], color=_SEARCHES[named["search"]][0],
                            linewidth=0.6 + 0.3 * np.log2(named["rank"] + 1.0))
            losses.set(xlabel="step", ylabel="loss (thicker: higher rank)")
    return figure


def draw_rates_by_rank(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the rates of one class over ranks, with their intervals and a legend."""
    for search, (color, marker) in _SEARCHES.items():
        block = rows[rows["search"] == search].sort_values("rank")
        if len(block):
            axes.errorbar(block["rank"], block["value"], yerr=reach(block), color=color,
                          marker=marker, markersize=4, linewidth=1.0, label=search)
    whole = rows[rows["search"] == "whole"]
    if len(whole):
        axes.axhline(whole["value"].iloc[0], color=GREY, linestyle="--", linewidth=1.0,
                     label="whole")
    axes.set_xscale("log", base=2)
    axes.set(xlabel="rank", ylim=(-0.03, 1.03))
    axes.legend(fontsize=7)
