"""The outcome of attribution: maps, patches that check them, and small sets of places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from latentcode.figures.style import Figure
from latentcode.probes.attribution.figure import maps_figure, sets_figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.results import TableResult, where, with_interval

PLACE: tuple[str, ...] = ("site", "layer", "query", "key")
"""Columns that name a place; a value has no query."""
LEAST_PLACES = 20
"""A correlation over fewer places is not shown."""
ESTIMATES: tuple[str, ...] = ("path", "path_absolute", "gradient", "gradient_absolute")


@dataclass(frozen=True, repr=False)
class AttributionResult(TableResult):
    """Where the codes and values are that the source's answer hangs on.

    Places are named by the roles of query and key. Estimates are in the unit of the step towards
    the source's answer: nats where answers are symbols, the answer's own where they are numbers.

    maps     one row per place, all heads together: the mean estimate over instances by `path`
             and by `gradient` (`latentcode.probes.attribution.methods`), and the means of their
             sizes, `path_absolute` and `gradient_absolute`
    heads    the same per head
    patches  places that were written singly (`chosen`: as one of the strongest, or at random):
             both estimates, and the real `effect` with its interval; `rate`, the share of answers
             that became the source's
    correlations  of either estimate and the effect over these places
    curve    of sets that grow in the order of either estimate, or in a random one of all places,
             also of those that nothing hangs on: `rate` and `step` with intervals, over the
             instances that took no part in any choice
    smallest one row per site: the rate of writing all places, on the instances that the set was
             chosen on (`searched_`) and on the others (`held_`); the `size` of a small set, and
             `before_pruning`; its rate on the first, `searched`, and on the others, with
             interval. It is found greedily, and a smaller one may do as much. NaN where none was
    chosen   the places of that set, and their estimates by path
    contrasts  of sets of one size: what those in the order of an estimate bring (`rate`, `step`)
             less what those in a `random` order do
    settings everything else that determines the numbers
    """

    FORMAT = "latentcode.attribution"
    SHOWS = "how well linear estimates do, and how few places suffice"
    COLUMNS: ClassVar = {
        "maps": (*PLACE, *ESTIMATES),
        "heads": (*PLACE, "head", *ESTIMATES),
        "patches": (*PLACE, "chosen", "path", "gradient", "effect", "low", "high", "rate", "n"),
        "correlations": ("site", "estimate", "among", "measure", "value", "low", "high",
                         "n_places", "n"),
        "curve": ("site", "order", "size", "rate", "low", "high", "step", "step_low", "step_high",
                  "n"),
        "smallest": ("site", "n_places", "searched_all", "held_all", "size", "before_pruning",
                     "searched", "rate", "low", "high", "step", "step_low", "step_high", "n"),
        "chosen": (*PLACE, "path"),
        "contrasts": contrast_columns("site", "size", "order")}
    BEST_OF: ClassVar = ("size",)
    TOLD: ClassVar = {"quantity": ("rate",)}

    maps: pd.DataFrame
    heads: pd.DataFrame
    patches: pd.DataFrame
    correlations: pd.DataFrame
    curve: pd.DataFrame
    smallest: pd.DataFrame
    chosen: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def shown(self) -> pd.DataFrame:
        """The correlations over at least `LEAST_PLACES` places."""
        return self.correlations[self.correlations["n_places"] >= LEAST_PLACES]

    def sought(self, small: Mapping[Any, Any]) -> bool:
        """Say of a row of `smallest` whether a set is looked for: do all places bring enough?

        Older results do not have the lower end of their rate's interval; the rate is above it.
        """
        low = self.settings.get("searched_low", {}).get(small["site"], small["searched_all"])
        return bool(low > self.settings["least_rate"])

    def share(self, small: Mapping[Any, Any]) -> float:
        """Return the part of what all places bring that a set brings on the held-out instances."""
        return float(small["rate"] / small["held_all"]) if small["held_all"] else np.nan

    @property
    def caveats(self) -> tuple[str, ...]:
        s = self.settings
        notes = [f"{s['n_known']} of {s['n']} instances count, which the model and its sources "
                 f"answer rightly; {s['n_patched']} of them are written into."]
        for row in self.smallest.to_dict("records"):
            everything = (f"All {row['site']}s bring the source's answer in "
                          f"{row['searched_all']:.2f}")
            if not self.sought(row):
                notes.append(f"{everything}, not surely more than {s['least_rate']}: no set is "
                             "looked for.")
            elif np.isnan(row["size"]):
                notes.append(f"{everything}, and the first {min(s['n_ranked'], row['n_places'])} "
                             f"places do not bring {s['share']:.0%} of that.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return per site the correlations, the rate of all places, and a small set's."""
        rows = []
        for small in self.smallest.to_dict("records"):
            site = small["site"]
            row: dict[str, Any] = {"site": site}
            for r in where(self.shown, site=site, among="all",
                           measure="pearson").itertuples():
                row[f"r of {r.estimate}"] = with_interval(r)
            row |= {"places": small["n_places"], "all": f"{small['held_all']:.2f}"}
            if self.sought(small) and not np.isnan(small["size"]):
                row |= {"small set": int(small["size"]),
                        "its rate": f"{small['rate']:.2f} [{small['low']:.2f}, "
                                    f"{small['high']:.2f}]",
                        "of all": f"{self.share(small):.0%}"}
            rows.append(row)
        columns = dict.fromkeys(name for row in rows for name in row)
        return pd.DataFrame([{name: row.get(name, "") for name in columns} for row in rows])

    def figure(self) -> Figure:
        """Return the maps; see `maps_figure`."""
        return maps_figure(self.maps, self.settings)

    def figures(self) -> dict[str, Figure]:
        """Return the maps, and how sets grow beside the check by single patches."""
        sought = self.smallest.assign(size=[
            row["size"] if self.sought(row) else np.nan
            for row in self.smallest.to_dict("records")])
        return super().figures() | {
            "sets.png": sets_figure(self.patches, self.curve, sought, self.settings)}
