"""The table of heads: its columns, and which of its heads are outside the control."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from latentcode.probes.common.contrasts import contrast_columns

COLUMNS = ("layer", "head", "metric", "value", "low", "high", "control", "control_low",
           "control_high", "n")
CONTRASTS = contrast_columns("layer", "head", "features")


def outside(heads: pd.DataFrame, contrasts: pd.DataFrame) -> pd.Series:
    """Return of each row of the table of heads 1 where the head is surely above the interval of
    fresh ones, -1 where it is below, else 0.

    The interval of its difference from their mean has to be beyond that of theirs: texts that raise
    a metric in all heads raise it in both.
    """
    keys = ["layer", "head", "metric"]
    apart = contrasts.rename(columns={"quantity": "metric", "low": "apart_low",
                                      "high": "apart_high"})
    apart = heads.merge(apart[[*keys, "apart_low", "apart_high"]], on=keys, how="left")
    over = apart["apart_low"] > apart["control_high"] - apart["control"]
    under = apart["apart_high"] < apart["control_low"] - apart["control"]
    return pd.Series(over.to_numpy().astype(int) - under.to_numpy().astype(int), heads.index)


def by_metric(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each metric that has values, in order of appearance."""
    for name, rows in table.groupby("metric", sort=False):
        if rows["value"].notna().any():
            yield str(name), rows


__all__ = ["COLUMNS", "CONTRASTS", "by_metric", "outside"]
