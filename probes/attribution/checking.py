"""Are linear estimates right? Single places written for real, beside what attribution says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from latentcode.probes.attribution.instances import Patched
from latentcode.probes.attribution.methods import METHODS
from latentcode.probes.common.bootstrap import (
    cluster_sums,
    mean_and_interval,
    percentile_interval,
    resample,
)

AMONG = ("all", "strongest", "random")
"""Which of the places that were patched a correlation is over."""


def to_check(
    estimates: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Return the n places of largest |estimate|, up to n random others, and how many are first.

    estimates  [method, place]; every method gives its strongest in turn
    Of the others only those count whose estimates are not exactly 0, as they are where nothing
    leads from a place to the answer.
    """
    ranks = np.argsort(np.argsort(-np.abs(estimates), axis=1, kind="stable"), axis=1)
    order = np.argsort(ranks.min(0), kind="stable")
    strongest, others = order[:n], order[n:]
    others = others[(estimates[:, others] != 0.0).any(0)]
    return np.concatenate([strongest, rng.permutation(others)[:n]]), len(strongest)


def checked(
    patched: Patched, site: str, names: pd.DataFrame, *, n: int, n_bootstrap: int, seed: int,
    advance: Callable[[], None],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return single patches beside their estimates, and the correlations of the two.

    names  `site`, `layer`, `query` and `key` of every place
    """
    estimates = np.stack([patched.estimates(method, site) for method in METHODS])
    combination = patched.combinations()
    places, n_first = to_check(estimates.mean(1), n, np.random.default_rng(seed))
    measured = []
    for place in places:
        measured.append(np.stack(patched.written(site, np.array([place]))))
        advance()
    effects, flipped = np.stack(measured, -1)  # [N, place]
    estimates = estimates[:, :, places]
    effect, low, high, _ = mean_and_interval(effects, combination, n_bootstrap, seed)
    group = np.where(np.arange(len(places)) < n_first, "strongest", "random")
    table = names.iloc[places].assign(
        chosen=group, **dict(zip(METHODS, estimates.mean(1), strict=True)), effect=effect, low=low,
        high=high, rate=flipped.mean(0), n=len(effects))
    rows = []
    for among in AMONG:
        which = np.full(len(places), True) if among == "all" else group == among
        for method, estimate in zip(METHODS, estimates, strict=True) if which.sum() > 2 else ():
            rows += [{"site": site, "estimate": method, "among": among, **row,
                      "n_places": int(which.sum()), "n": len(effects)} for row in _correlations(
                          estimate[:, which], effects[:, which], combination, n_bootstrap, seed)]
    return table, pd.DataFrame(rows)


def _correlations(
    estimates: np.ndarray, effects: np.ndarray, combination: np.ndarray, n_bootstrap: int,
    seed: int,
) -> list[dict[str, object]]:
    """Return how the means over instances [N, place] of both go together over places."""
    both, _ = cluster_sums(np.stack([estimates, effects], 1), combination)
    # Sums and means are as correlated.
    weights = resample(len(both), n_bootstrap, np.random.default_rng(seed))
    drawn = np.tensordot(np.concatenate([np.ones((1, len(both))), weights]), both, axes=1)
    found = []
    for measure, x in (("pearson", drawn), ("spearman", rankdata(drawn, axis=-1))):
        r = _correlation(x[:, 0], x[:, 1])
        low, high = percentile_interval(r[1:], len(both))
        found.append({"measure": measure, "value": float(r[0]), "low": float(low),
                      "high": float(high)})
    return found


def _correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation along the last axis; NaN where one of the two is constant."""
    x, y = (v - v.mean(-1, keepdims=True) for v in (x, y))
    norm = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.asarray(np.where(norm > 0, (x * y).sum(-1) / np.where(norm > 0, norm, 1.0), np.nan))
