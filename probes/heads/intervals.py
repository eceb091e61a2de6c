"""From sums over texts to the table of heads: values with intervals, beside fresh heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from latentcode.probes.common.contrasts import Contrasts, table_of
from latentcode.probes.heads.observing import OBSERVED, Sums
from latentcode.probes.heads.tables import COLUMNS, CONTRASTS

SHARE = 0.95
"""How likely another fresh head lies within the interval of the control."""


def heads_table(
    layers: Sequence[int], of: Sums, fresh: Sequence[Sums], *, n_bootstrap: int, seed: int
) -> tuple[pd.DataFrame, Contrasts]:
    """Return the metrics of all heads, and how far each is from the mean of fresh heads.

    layers  what the axis L of sums stands for
    of      the sums of the model
    fresh   those of the same architecture with fresh weights on the same texts; may be none

    Intervals resample groups of texts, of a difference the same for both. `control` is the mean
    over all n heads of the fresh models, `control_low` and `control_high` are those of rank
    0.025 (n + 1) and 0.975 (n + 1) among them, between ranks by interpolation: between these lies
    another head that learned nothing with 95 %, where heads are independent. Of fewer than 39
    heads they are the least and the largest, and it lies between them with (n - 1) / (n + 1).
    """
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for metric, name in enumerate(OBSERVED):
        scores, *others = (one.scores(metric, n_bootstrap, seed) for one in (of, *fresh))
        heads = np.concatenate([np.empty(0), *(one.value.ravel() for one in others)])
        heads = heads[np.isfinite(heads)]
        control: dict[str, Any] = dict.fromkeys(
            ("control", "control_low", "control_high"), np.nan)
        if len(heads):
            ends = np.quantile(heads, [(1.0 - SHARE) / 2.0, (1.0 + SHARE) / 2.0],
                               method="weibull")
            control = {"control": heads.mean(), "control_low": ends[0], "control_high": ends[1]}
            mean = np.mean([_mean_over_heads(one.replicates) for one in others], axis=0)
            apart = replace(scores, value=scores.value - control["control"],
                            replicates=scores.replicates - mean[:, None, None])
        for at in np.ndindex(scores.value.shape):
            place = {"layer": layers[at[0]], "head": at[1]}
            rows.append({**place, "metric": name, **scores.row(at), **control, "n": scores.n})
            if len(heads):
                differences.append({**place, "features": "head", "quantity": name,
                                    "against": "untrained", **apart.row(at), **apart.size})
    return pd.DataFrame(rows, columns=list(COLUMNS)), table_of(differences, CONTRASTS)


def _mean_over_heads(replicates: np.ndarray) -> np.ndarray:
    """Return the mean over the heads that have the metric, [R]."""
    flat = replicates.reshape(len(replicates), -1)
    there = np.isfinite(flat).any(axis=0)
    return np.asarray(flat[:, there].mean(axis=1) if there.any() else np.full(len(flat), np.nan))


__all__ = ["heads_table"]
