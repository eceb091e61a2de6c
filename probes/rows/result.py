"""The outcome of decoding rows: scores of all features at the same width, and gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.figures.style import Figure
from latentcode.probes.common.results import (
    FIGURE,
    TableResult,
    blocks,
    distinct,
    with_interval,
)
from latentcode.probes.decoding.result import HEADLINE
from latentcode.probes.rows.figure import gains_figure, rows_figure

READ = "read"
"""The status of what has a score; any other says why there is none."""
FLAT = "the features do not vary: nothing to read"
ONE_CLASS = "the label has a single outcome in training"


@dataclass(frozen=True, repr=False)
class RowsResult(TableResult):
    """Scores of probes on features of one instance, beside their controls, and gains.

    table     one row per pair, layer, features, model, width, label and metric. `model` is
              `trained`, `untrained` (initial weights) or `shuffled` (trained, labels of other
              instances); `size` the numbers that the features have, `dimensions` how many the probe
              read, at most `width`; `value` with its 95 % interval `low`, `high`, clustered by
              held-out combination; `prior` what the training prior scores on the held-out
              instances, `best_constant` the best constant answer (an oracle); `status` is `read`,
              or says why there is no value. A log loss is in nats, and less is better.
    given     one row per pair, layer, features, model, width, label and `given`: the log loss of
              the probe that knows only what is given (`known`), that of the one that has the
              features, too (`with_features`), and `gain`, the difference, with its interval, in
              nats. Under `shuffled` stand the features of another instance: what is lost by
              reading nothing.
    settings  everything else that determines the numbers
    """

    FORMAT = "latentcode.rows"
    SHOWS = "score on held-out combinations, 95 % interval"
    TEXT = ("label", "class", "layer", "features", "status")
    FORMERLY: ClassVar = {"source": "features", "with_source": "with_features"}
    RENAMED: ClassVar = {"status": {"the source does not vary: nothing to read": FLAT}}
    COLUMNS: ClassVar = {
        "table": ("pair", "layer", "features", "model", "width", "size", "dimensions", "label",
                  "metric", "value", "low", "high", "prior", "best_constant", "n_classes",
                  "n_unseen", "n_heldout_combinations", "penalty", "converged", "status"),
        "given": ("pair", "layer", "features", "model", "width", "size", "dimensions", "label",
                  "given", "gain", "low", "high", "known", "with_features", "converged", "status")}

    table: pd.DataFrame
    given: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat()
        unread = self.table[self.table["status"] != READ]
        flat, label = unread["status"] == FLAT, unread["status"] == ONE_CLASS
        for features, layer, model in distinct(unread[flat], "features", "layer", "model"):
            notes.append(f"No score for {features}, layer {layer}, {model}: {FLAT}.")
        for (name,) in distinct(unread[label], "label"):
            notes.append(f"No score for {name}: {ONE_CLASS}.")
        failed = int((~self.table["converged"]).sum() + (~self.given["converged"]).sum())
        if failed:
            notes.append(f"The optimiser did not converge in {failed} rows of the tables.")
        return tuple(notes)

    def summary(self, metrics: Sequence[str] = HEADLINE) -> pd.DataFrame:
        """Return one row per pair, width, label, features and layer, and the score by model."""
        table = self.table[self.table["metric"].isin(list(metrics))]
        return pd.DataFrame([
            place | {str(r.model): with_interval(r) for r in block.itertuples()}
            | {"prior": f"{block['prior'].iloc[0]:.2f}",
               "best constant": f"{block['best_constant'].iloc[0]:.2f}"}
            for place, block in blocks(
                table, ("pair", "width", "label", "metric", "features", "layer"))])

    def figure(self, metrics: Sequence[str] = HEADLINE) -> Figure:
        """Return the score per layer of all features: a row per width, a column per label."""
        return rows_figure(self.table[self.table["metric"].isin(list(metrics))],
                           missing=self.missing_controls)

    def figures(self) -> dict[str, Figure]:
        """Return the scores and, where there are some, the gains over what is known."""
        every = {FIGURE: self.figure()}
        return every | {"given.png": gains_figure(self.given)} if len(self.given) else every
