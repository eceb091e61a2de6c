"""The outcome of decoding: scores beside their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.figures.style import Figure
from latentcode.probes.common.results import TableResult, blocks, with_interval
from latentcode.probes.common.shared import OVERLAP_FORMERLY, shared_caveat
from latentcode.probes.decoding.figure import decoding_figure

HEADLINE: tuple[str, ...] = ("accuracy", "f1")
"""The metric that is quoted first: accuracy of single-label, F1 of multi-label problems."""


@dataclass(frozen=True, repr=False)
class DecodingResult(TableResult):
    """Scores of probes beside their controls.

    table      one row per layer, pair, label, features and metric: `value`, its 95 % interval
               `low`, `high` clustered by held-out combination (NaN for a single one), `chance`,
               the numbers of instances, combinations and classes, held-out instances of classes
               that training lacks (`n_unseen`), `C`, and whether the optimiser `converged`
    per_class  one row per layer, pair, label, features and class: `f1`, `low`, `high`, instances
    settings   everything else that determines the numbers
    """

    FORMAT = "latentcode.decoding"
    SHOWS = "score on held-out combinations, 95 % interval"
    SETTINGS_FORMERLY: ClassVar = OVERLAP_FORMERLY
    FORMERLY: ClassVar = {"source": "features"}
    COLUMNS: ClassVar = {
        "table": ("layer", "pair", "label", "features", "metric", "value", "low", "high", "chance",
                  "n_train", "n_heldout", "n_train_combinations", "n_heldout_combinations",
                  "n_classes", "n_unseen", "C", "converged"),
        "per_class": ("layer", "pair", "label", "features", "class", "f1", "low", "high",
                      "n_heldout", "n_train")}

    table: pd.DataFrame
    per_class: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat() + shared_caveat(self.settings)
        unseen = self.table.groupby("label", sort=False)["n_unseen"].max()
        notes += [f"Label {label}: {n} held-out instances have a class that training lacks; "
                  "they count as errors." for label, n in unseen.items() if n > 0]
        failed = self.table.loc[~self.table["converged"], ["layer", "pair", "label", "features"]]
        notes += [f"The optimiser did not converge: {features}, label {label}, layer {layer}, "
                  f"{pair}." for layer, pair, label, features
                  in failed.drop_duplicates().itertuples(index=False)]
        if (self.table["n_heldout_combinations"] < 2).any():
            notes.append("A single held-out combination gives no interval.")
        return tuple(notes)

    def summary(self, metrics: Sequence[str] = HEADLINE) -> pd.DataFrame:
        """Return one row per layer, pair, label and metric, and `value [low, high]` by features."""
        table = self.table[self.table["metric"].isin(list(metrics))]
        return pd.DataFrame([
            place | {str(r.features): with_interval(r, digits=3)
                     for r in block.itertuples()} | {"chance": f"{block['chance'].iloc[0]:.3f}"}
            for place, block in blocks(table, ("label", "metric", "pair", "layer"))])

    def figure(self, metrics: Sequence[str] = HEADLINE) -> Figure:
        """Return the score per layer: a row per label and metric, a column per pair."""
        return decoding_figure(self.table[self.table["metric"].isin(list(metrics))],
                               missing=self.missing_controls)
