"""The outcome of distributed alignment search: classes of answers, learning curves, a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.figures.style import Figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.results import TableResult, blocks, where, with_interval
from latentcode.probes.das.figure import das_figure

SOURCE = "operation+operands"
"""The source that searches are trained with, and that tells the classes apart."""


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
