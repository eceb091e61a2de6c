"""The outcome of looking at heads: a table and a map of all of them, metric by metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.errors import ProbeError, check
from latentcode.figures.style import Figure
from latentcode.probes.common.contrasts import NONE, Contrasts
from latentcode.probes.common.results import TableResult, where, with_interval
from latentcode.probes.heads.figure import maps_figure
from latentcode.probes.heads.tables import COLUMNS, CONTRASTS, by_metric, outside

NAMES: Mapping[str, str] = {
    "previous_token": "previous token", "duplicate_token": "duplicate token",
    "first_token": "first token", "distance": "distance (tokens)", "entropy": "entropy (nats)",
    "normalized_entropy": "entropy / largest", "direct_logit_attribution": "direct logits"}
"""Metrics as maps call them, where it is not their name."""
SHOWN = 3
"""Heads of each metric in the summary."""


@dataclass(frozen=True, repr=False)
class HeadsResult(TableResult):
    """What each head attends to, and what it adds to the logit of the next token.

    heads      one row per layer, head and metric: `value`, its 95 % interval `low`, `high`, and the
               same metric of the heads of the same architecture with fresh weights on the same
               texts: `control`, their mean, and `control_low`, `control_high`, between which 95 %
               of these heads lie. `n` is how many queries (of the direct logit attribution, read
               positions) the value is a mean over
    contrasts  one row per layer, head and metric: the value less the mean of the control
    settings   everything else that determines the numbers

    The metrics are those of `latentcode.probes.heads.metrics` and `direct`. Intervals are 95 %
    bootstrap intervals (percentiles), which resample texts (of more than 256, groups of texts).
    """

    FORMAT = "latentcode.heads"
    SHOWS: ClassVar = "heads outside the interval of heads with fresh weights"
    COLUMNS: ClassVar = {"heads": COLUMNS, "contrasts": CONTRASTS}
    BEST_OF: ClassVar = ("layer", "head")

    heads: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def missing_controls(self) -> tuple[str, ...]:
        return () if "untrained" in self.settings["controls"] else ("untrained",)

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = [*self.settings["notes"], *self.controls_caveat()]
        if not self.missing_controls:
            n = self.heads[["layer", "head"]].drop_duplicates().shape[0]
            notes.append(f"Of {n} heads that learned nothing, about {n / 40:.1f} are expected "
                         "above the interval of the control in each metric.")
        if self.settings["n_texts"] < 2:
            notes.append("There is a single text, so that there are no intervals.")
        return tuple(notes)

    def said(self) -> list[str]:
        """Say how many heads are above fresh ones, metric by metric, and which is most."""
        if self.missing_controls:
            return [self.contrasts.reason]
        sentences = []
        for metric, rows in by_metric(self.marked()):
            over, under = (int((rows["outside"] == side).sum()) for side in (1, -1))
            if over + under == 0:
                continue
            first = rows.iloc[0]
            most = rows.sort_values("value", ascending=over == 0).iloc[0]
            sentences.append(
                f"{metric.replace('_', ' ')}: {over} of {len(rows)} heads above and {under} below "
                f"those of untrained models ({first['control_low']:.3f} to "
                f"{first['control_high']:.3f}); {'most' if over else 'least'} {_named(most)}")
        return sentences or ["no head is outside the interval of untrained ones in any metric"]

    def summary(self) -> pd.DataFrame:
        """Return, per metric, the control, how many heads are outside it, and the largest."""
        rows = []
        for metric, block in by_metric(self.marked()):
            first = block.iloc[0]
            largest = block.sort_values("value", ascending=False).head(SHOWN)
            control = {} if self.missing_controls else {
                "untrained": f"{first['control']:.3f} [{first['control_low']:.3f}, "
                             f"{first['control_high']:.3f}]",
                "above": int((block["outside"] == 1).sum()),
                "below": int((block["outside"] == -1).sum())}
            rows.append({"metric": metric, **control, "largest": "; ".join(
                _named(row) for _, row in largest.iterrows())})
        return pd.DataFrame(rows)

    def marked(self) -> pd.DataFrame:
        """Return the table of heads with a column `outside`: 1 where a head is surely above the
        interval of untrained ones, -1 where it is below, else 0."""
        return self.heads.assign(outside=outside(self.heads, self.contrasts.table))

    def matrix(self, metric: str, column: str = "value") -> pd.DataFrame:
        """Return a metric of all heads, layers [L] by heads [H]."""
        rows = where(self.heads, metric=metric)
        check(len(rows) > 0, f"there is no metric {metric!r}; expected one of "
              f"{', '.join(self.heads['metric'].unique())}", ProbeError)
        return rows.pivot(index="layer", columns="head", values=column)

    def figure(self) -> Figure:
        """Return a map of layers and heads for each metric."""
        marked = "" if self.missing_controls else "; dots: outside 95 % of untrained heads"
        return maps_figure(self.marked(), NAMES, f"{self.settings['run']}{marked}")


def _named(row: pd.Series) -> str:
    return f"L{int(row['layer'])}H{int(row['head'])} {with_interval(row)}"


__all__ = ["HeadsResult"]
