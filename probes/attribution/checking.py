"""Are linear estimates right, and how few places carry the answer? Places written for real.

How few places carry the answer? A small set that does most of what all of them do.

Places are added in order of attribution until the share of answers that become the source's is
SHARE of what writing all places brings; then, from the least important on, each that is not needed
for that is taken out again. That is greedy: a smaller set may do as much. One half of the instances
says which places these are, the other half what they bring, which may be less than SHARE.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from latentcode.probes.attribution.instances import Patched
from latentcode.probes.attribution.result import METHODS
from latentcode.probes.common.bootstrap import (
    cluster_sums,
    mean_and_interval,
    percentile_interval,
    resample,
)

AMONG = ("all", "strongest", "random")
"""Which of the places that were patched a correlation is over."""
SHARE = 0.9
"""Share of the effect of all places that a set has to have where it is chosen."""
LEAST_RATE = 0.2
"""No set is looked for where the interval of the rate of all places does not lie above this."""


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


@dataclass
class Search:
    """Sets of places of a site, in order of attribution, and their rates on the searched half.

    order    the places, the one that attribution ranks first before the others
    advance  called after each set that is measured
    """

    searched: Patched
    site: str
    order: np.ndarray
    advance: Callable[[], None]
    _rates: dict[int, float] = field(default_factory=dict)

    def rate(self, places: np.ndarray) -> float:
        """Return the share of answers that become the source's where these places are written."""
        _, flipped = self.searched.written(self.site, places)
        self.advance()
        return float(flipped.mean())

    def of_first(self, size: int) -> float:
        """Return the rate of the first places of the order."""
        if size not in self._rates:
            self._rates[size] = self.rate(self.order[:size])
        return self._rates[size]

    def smallest(self, n_ranked: int, of_all: float) -> tuple[np.ndarray, int] | None:
        """Return a set that reaches SHARE, after pruning, and its size before; None without one.

        n_ranked  how many of the places may be in it, from the first on
        of_all    the rate of all places
        """
        wanted = SHARE * of_all
        size = next((size for size in doublings(min(n_ranked, len(self.order)))
                     if self.of_first(size) >= wanted), None)
        if size is None:
            return None
        low = size // 2  # did not reach it, or is 0
        while size - low > 1:
            middle = (low + size) // 2
            low, size = (low, middle) if self.of_first(middle) >= wanted else (middle, size)
        kept = self.order[:size]
        for place in kept[::-1] if size > 1 else ():
            without = kept[kept != place]
            if len(without) and self.rate(without) >= wanted:
                kept = without
        return kept, size


def doublings(last: int) -> list[int]:
    """Return 1, 2, 4, ... and `last`."""
    return [*(2**i for i in range(last.bit_length()) if 2**i < last), last]
