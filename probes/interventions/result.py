"""The outcome of interventions: rates with intervals, a table rule A x rule B, a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from latentcode.figures.style import Figure
from latentcode.probes.common.bootstrap import percentile_interval, resample
from latentcode.probes.common.results import TableResult
from latentcode.probes.interventions.figure import intervention_figure, matrix_figure, written

PLACE: tuple[str, ...] = ("write", "scope", "layers", "site", "alpha", "heads", "renormalized")
"""Columns that name an intervention."""


@dataclass(frozen=True, repr=False)
class InterventionResult(TableResult):
    """What became of the answers.

    table    one row per intervention and metric (`switch`, `stay`, ...): `value`, the mean over
             instances, its 95 % interval `low`, `high` clustered by combination (NaN for a single
             one), and the numbers of instances and combinations. An answer switches where it
             becomes the donor's, which in a minimal pair does not tell operation from answer
    by_constituent  one row per intervention, constituent of the instance (`source`) and of the
             donor (`target`): instances, `switch` and `stay`
    settings everything else that determines the numbers; `n_counted` instances have two
             different answers, `n_known` of them the model answers rightly
    """

    FORMAT = "latentcode.interventions"
    SHOWS = "rates at which answers switch to the donor's and stay"
    COLUMNS: ClassVar = {
        "table": (*PLACE, "metric", "value", "low", "high", "n", "n_combinations"),
        "by_constituent": (*PLACE, "source", "target", "n", "switch", "stay")}
    TEXT = ("layers", "heads", "source", "target")

    table: pd.DataFrame
    by_constituent: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        s = self.settings
        notes = [f"{s['n_known']} of {s['n']} instances count: {s['n_counted']} have two different "
                 "answers, and the model gives both of these."]
        if s["chance"] is not None:
            notes.append(f"An answer drawn at random switches in {s['chance']:.3f}.")
        return (*notes, *s.get("notes", ()))

    def summary(self, metrics: Sequence[str] = ("switch", "stay", "others", "moved")
                ) -> pd.DataFrame:
        """Return one row per intervention, and `value [low, high]` by metric."""
        rows = []
        for key, block in self.table.groupby(list(PLACE), sort=False, dropna=False):
            assert isinstance(key, tuple)
            named: dict[str, Any] = dict(zip(PLACE, key, strict=True))
            row: dict[str, Any] = {"write": written(named),
                                   **{k: named[k] for k in ("scope", "layers", "site")}}
            values = block.set_index("metric")
            for metric in metrics:
                if metric in values.index:
                    r = values.loc[metric]
                    row[metric] = f"{r.value:.3f} [{r.low:.3f}, {r.high:.3f}]"
            row["n"] = int(block["n"].iloc[0])
            rows.append(row)
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Return rates of switching and staying; see `intervention_figure`."""
        return intervention_figure(self.table, self.settings["chance"])

    def figures(self) -> dict[str, Figure]:
        """Return the rates and, of the donor's codes where they switch most, rule by rule."""
        plain = self.table[
            (self.table["write"] == "donor") & (self.table["metric"] == "switch")
            & (self.table["heads"] == "all") & (self.table["site"] == "code")
            & ~self.table["renormalized"]]
        rates = plain[plain["scope"] != "everything"].dropna(subset="value")
        if not len(rates):
            return super().figures()
        best = rates.sort_values("value", kind="stable").iloc[-1]
        place = {name: best[name] for name in ("write", "scope", "layers", "site", "heads",
                                               "renormalized")}
        title = f"donor's codes: {best['scope']}, layers {best['layers']}"
        return super().figures() | {
            f"{metric}.png": matrix_figure(self.matrix(metric, **place), f"{metric} rate\n{title}")
            for metric in ("switch", "stay")}

    def matrix(self, metric: str = "switch", **place: object) -> pd.DataFrame:
        """Return a metric as a table: constituents of instances down, of donors across.

        place  columns that choose one intervention, such as write="donor", scope="row",
               layers="2,3"; instances of all that fit are pooled
        """
        rows = self.by_constituent
        for column, value in place.items():
            rows = rows[rows[column] == value]
        rows = rows.assign(hits=rows[metric] * rows["n"])
        sums = rows.groupby(["source", "target"])[["hits", "n"]].sum()
        matrix = (sums["hits"] / sums["n"]).unstack()
        names = self.settings["constituents"]
        return matrix.reindex(index=[n for n in names if n in matrix.index],
                              columns=[n for n in names if n in matrix.columns])


def tables(
    instances: pd.DataFrame, rows: Sequence[Mapping[str, Any]], constituents: Sequence[str],
    n_bootstrap: int, seed: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the two tables of the outcomes of single instances.

    instances  `intervention` (a row of `rows`), `combination`, `source`, `target`, and one
               column per metric
    """
    metrics = [c for c in instances.columns
               if c not in ("intervention", "combination", "source", "target")]
    long: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    for number, place in enumerate(rows):
        block = instances[instances["intervention"] == number]
        if not len(block):  # nothing could be transplanted
            long += [{**place, "metric": metric, "value": np.nan, "low": np.nan, "high": np.nan,
                      "n": 0, "n_combinations": 0} for metric in metrics]
            continue
        clusters = block.groupby("combination")[metrics].agg("sum").to_numpy()
        sizes = block.groupby("combination").size().to_numpy(dtype=np.float64)
        # The same replicates for every intervention, so that their intervals can be compared.
        weights = resample(len(sizes), n_bootstrap, np.random.default_rng(seed))
        replicates = (weights @ clusters) / (weights @ sizes)[:, None]
        low, high = percentile_interval(replicates, len(sizes))
        means = clusters.sum(0) / sizes.sum()
        long += [{**place, "metric": metric, "value": means[i], "low": low[i], "high": high[i],
                  "n": len(block), "n_combinations": len(sizes)}
                 for i, metric in enumerate(metrics)]
        for (source, target), cell in block.groupby(["source", "target"], sort=True):
            names = constituents[int(str(source))], constituents[int(str(target))]
            pairs.append({**place, "source": names[0], "target": names[1], "n": len(cell),
                          "switch": cell["switch"].mean(), "stay": cell["stay"].mean()})
    columns = InterventionResult.COLUMNS
    return (pd.DataFrame(long, columns=list(columns["table"])),
            pd.DataFrame(pairs, columns=list(columns["by_constituent"])))
