"""From sums over texts to the table of heads: values with intervals, beside fresh heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from latentcode.probes.common.bootstrap import percentile_interval, resample
from latentcode.probes.common.contrasts import Contrasts, contrast_columns, table_of
from latentcode.probes.heads.observing import OBSERVED, Sums

COLUMNS = ("layer", "head", "metric", "value", "low", "high", "control", "control_low",
           "control_high", "n")
CONTRASTS = contrast_columns("layer", "head", "features")
SHARE = 0.95
"""Share of fresh heads that lie within the interval of the control."""


def heads_table(
    of: Sums, fresh: Sequence[Sums], *, n_bootstrap: int, seed: int
) -> tuple[pd.DataFrame, Contrasts]:
    """Return the metrics of all heads, and how far each is from the mean of fresh heads.

    of     the sums of the model
    fresh  those of the same architecture with fresh weights on the same texts; may be none

    Intervals resample groups of texts, of a difference the same for both. `control` is the mean
    over all heads of the fresh models, `control_low` and `control_high` are the 2.5 and 97.5 %
    quantiles over these heads: what the metric is for heads that learned nothing.
    """
    of, fresh = of.held(), [one.held() for one in fresh]
    n_groups = len(of.n)
    weights = resample(n_groups, n_bootstrap, np.random.default_rng(seed))
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for metric, name in enumerate(OBSERVED):
        mean, replicates = _resampled(of, metric, weights)
        low, high = percentile_interval(replicates, n_groups)
        control: dict[str, Any] = dict.fromkeys(
            ("control", "control_low", "control_high"), np.nan)
        others = [_resampled(one, metric, weights) for one in fresh]
        heads = np.concatenate([value.ravel() for value, _ in others]) if others else np.empty(0)
        heads = heads[np.isfinite(heads)]
        if len(heads):
            ends = np.quantile(heads, [(1.0 - SHARE) / 2.0, (1.0 + SHARE) / 2.0])
            control = {"control": heads.mean(), "control_low": ends[0], "control_high": ends[1]}
            mean_replicates = np.mean([_mean_over_heads(again) for _, again in others], axis=0)
            apart_low, apart_high = percentile_interval(
                replicates - mean_replicates[:, None, None], n_groups)
        n = int(of.n[:, metric].sum())
        for layer, head in np.ndindex(mean.shape):
            place = {"layer": layer, "head": head}
            rows.append({**place, "metric": name, "value": mean[layer, head],
                         "low": low[layer, head], "high": high[layer, head], **control, "n": n})
            if len(heads):
                differences.append({
                    **place, "features": "head", "quantity": name, "against": "untrained",
                    "value": mean[layer, head] - control["control"],
                    "low": apart_low[layer, head], "high": apart_high[layer, head], "n": n,
                    "n_clusters": n_groups})
    return pd.DataFrame(rows, columns=list(COLUMNS)), table_of(differences, CONTRASTS)


def _resampled(of: Sums, metric: int, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a metric of all heads [L, H], and its replicates [R, L, H]."""
    one = Sums(of.sums[..., metric:metric + 1], of.n[:, metric:metric + 1])
    return one.means()[..., 0], one.resampled(weights)[..., 0]


def _mean_over_heads(replicates: np.ndarray) -> np.ndarray:
    """Return the mean over the heads that have the metric, [R]."""
    flat = replicates.reshape(len(replicates), -1)
    there = np.isfinite(flat).any(axis=0)
    return np.asarray(flat[:, there].mean(axis=1) if there.any() else np.full(len(flat), np.nan))


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


__all__ = ["COLUMNS", "CONTRASTS", "by_metric", "heads_table", "outside"]
