"""Does a measure of the codes go with how well models generalise? Correlations across runs."""

from __future__ import annotations

from itertools import chain, permutations, product
from math import factorial, prod
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from latentcode.errors import ProbeError, check
from latentcode.probes.topography.result import SCOPES

EXACT = 5_040
"""Permutations, those of 7 runs, up to which all are gone through."""
N_PERMUTATIONS = 10_000
"""Random ones that stand for more of them."""


def rank_correlation(
    table: pd.DataFrame, measure: str, performance: str, *, within: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Spearman's rho of two columns of a table with one row per run, and what n runs can say.

    within  a column, such as `kind`: ranks are taken inside each of its groups and their means
            taken away, so that a difference between groups does not count, and permutations stay
            inside the groups

    n_runs      runs with both numbers
    rho         Spearman's correlation; NaN below 3 runs, or where a column is constant
    low, high   95 %: tanh(atanh(rho) -+ 1.96 sqrt((1 + rho^2 / 2) / (n - 3))) (Bonett and Wright
                2000), n less the groups but one; NaN below 4
    p           two-sided, by permutation of the runs (inside their groups): all permutations where
                there are at most 5,040, else 10,000 random ones, and then at least smallest_p
    smallest_p  what p would be if the order agreed perfectly
    detectable  tanh((1.96 + 0.84) sqrt(1.06 / (n - 3))): a true correlation that n runs find at
                the 5 % level four times out of five (variance by Fieller et al. 1957)

    `ProbeError` for a column that does not exist.
    """
    for column in filter(None, (measure, performance, within)):
        check(column in table, f"the table of runs has no column {column!r}; it has: "
              f"{', '.join(map(str, table.columns))}", ProbeError)
    rows = table.dropna(subset=[measure, performance])
    groups = np.zeros(len(rows), dtype=np.int64)
    if within:
        groups = np.asarray(pd.factorize(rows[within])[0], dtype=np.int64)
    x, y = (_ranks(rows[column].to_numpy(dtype=np.float64), groups)
            for column in (measure, performance))
    n = len(rows)
    freedom = n - (len(np.unique(groups)) - 1 if n else 0)
    norm = float(np.sqrt((x @ x) * (y @ y)))
    rho = float(x @ y) / norm if norm > 0 and freedom >= 3 else np.nan
    low = high = p = smallest = detectable = np.nan
    if not np.isnan(rho):
        null = _null(y, groups, seed) @ x / norm
        smallest = max(min(1.0, 2.0 / _permutations(groups)), 1.0 / len(null))
        p = max(float((np.abs(null) >= abs(rho) - 1e-12).mean()), smallest)
    if freedom >= 4:
        z = stats.norm.ppf(0.975)
        if not np.isnan(rho):
            half = z * np.sqrt((1.0 + rho**2 / 2.0) / (freedom - 3))
            middle = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
            low, high = float(np.tanh(middle - half)), float(np.tanh(middle + half))
        detectable = float(np.tanh((z + stats.norm.ppf(0.8)) * np.sqrt(1.06 / (freedom - 3))))
    return {"n_runs": n, "rho": rho, "low": low, "high": high, "p": p, "smallest_p": smallest,
            "detectable": detectable}


def correlate_runs(table: pd.DataFrame, runs: pd.DataFrame, place: list[str]) -> pd.DataFrame:
    """Return the correlation of `rho` with `performance` for every `place` of a table.

    table  one row per run and place, with columns `run` and `rho`
    runs   one row per run: `run`, `kind`, `performance`
    """
    joined = table.drop(columns="kind", errors="ignore").merge(
        runs[["run", "kind", "performance"]], on="run")
    several = len(runs["kind"].unique()) > 1
    rows = []
    for key, block in joined.groupby(place, sort=False):
        for scope in SCOPES if several else SCOPES[:1]:
            found = rank_correlation(block, "rho", "performance",
                                     within="kind" if scope == SCOPES[1] else None)
            rows.append(dict(zip(place, key, strict=True)) | {"scope": scope} | found)
    return pd.DataFrame(rows)


def _ranks(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return ranks inside each group, less their mean."""
    ranks = np.zeros(len(values))
    for group in np.unique(groups):
        mine = groups == group
        ranks[mine] = stats.rankdata(values[mine])
        ranks[mine] -= ranks[mine].mean()
    return ranks


def _permutations(groups: np.ndarray) -> int:
    """Return how many permutations leave every run in its group."""
    return prod(factorial(int(size)) for size in np.bincount(groups))


def _null(y: np.ndarray, groups: np.ndarray, seed: int) -> np.ndarray:
    """Return permutations [permutation, n] of y inside its groups, the given order first."""
    if _permutations(groups) <= EXACT:
        members = [np.flatnonzero(groups == group).tolist() for group in np.unique(groups)]
        orders = np.array([[*chain(*order)] for order in product(*map(permutations, members))])
        rows = np.empty(orders.shape)
        rows[:, orders[0]] = y[orders]
        return rows
    rng = np.random.default_rng(seed)
    drawn = [y]
    for _ in range(N_PERMUTATIONS - 1):
        row = np.empty_like(y)
        for group in np.unique(groups):
            mine = groups == group
            row[mine] = rng.permutation(y[mine])
        drawn.append(row)
    return np.array(drawn)
