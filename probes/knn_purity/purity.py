"""Do the nearest neighbours of a point have its label? The purity of neighbours, on arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.shuffling import shuffled_classes
from latentcode.probes.knn_purity.labels import label_classes
from latentcode.probes.knn_purity.neighbours import nearest
from latentcode.seeds import checked_seed

ALL, OTHER = "all", "of other combinations"
"""Whose labels are looked at: those of all neighbours, and of those of other combinations only."""
K = 10
"""Neighbours that are looked at."""
SHUFFLES = 5
"""Times that labels are shuffled."""
MOST_POINTS = 20_000
"""Most points among which neighbours are looked for."""
MOST_QUERIES = 5_000
"""Most points whose neighbours are looked for."""
LEAST, SPREADS = 0.05, 3.0
"""Least excess, by itself and in `spread`s of shuffled labels, that counts as separated."""


@dataclass(frozen=True)
class Shares:
    """How far the neighbours of single points agree with them on one label.

    label     its name
    among     `ALL` or `OTHER`
    kind      int [Q], the value of each point that was asked
    own       float64 [Q], the share of its neighbours that have its value; NaN where they cannot,
              because no point of another combination has it
    shuffled  float64 [shuffle], the purity of shuffled labels
    dealt     `kind` and `own` of each time that labels were shuffled
    """

    label: str
    among: str
    kind: np.ndarray
    own: np.ndarray
    shuffled: np.ndarray
    dealt: Sequence[tuple[np.ndarray, np.ndarray]] = ()


def purity(
    points: np.ndarray, labels: Mapping[str, np.ndarray] | pd.DataFrame, *,
    combinations: np.ndarray | None = None, k: int = K, shuffles: int = SHUFFLES, seed: int = 0,
) -> pd.DataFrame:
    """P = 1/V sum_v 1/|I_v| sum_(i in I_v) |{j in N(i): y_j = v}| / k: what do points separate?

    N(i) are the k nearest neighbours of point i (Euclidean, itself left out), I_v the points whose
    label y has the value v, V the number of values: a frequent value counts no more than a rare
    one. P is 1 where all neighbours agree, about 1 / V where they know nothing of the label. A
    value that fewer than k + 1 points have cannot reach 1.

    points        [N, d]
    labels        name -> values [N]. Measurements are cut at their median (see `label_classes`)
    combinations  [N] what points may be near for: labels are shuffled as
                  `probes.common.shuffling` says, so that a label which only names the combination
                  has no excess (where there are few combinations, shuffled labels agree more than
                  1 / V for this); and each label has a second row, for the k nearest neighbours of
                  *other* combinations. Without combinations single values are shuffled
    shuffles      how often labels are shuffled

    Returns a row per label and `among` (`ALL`, and `OTHER` where there are combinations): `values`,
    their number; `purity`, a mean over values; `shuffled`, its mean over the shuffled labels, and
    their standard deviation `spread`; `excess`, purity less shuffled; `points` asked. Among more
    than 20,000 points some are drawn, and of these at most 5,000 are asked. NaN where no value
    occurs in two combinations, and where no point of some value is asked. `ProbeError` for labels
    of another length or with missing values, for one value or more than 256, and for fewer than 4
    points.
    """
    rows = [{"label": s.label, "among": s.among, "values": len(np.unique(s.kind)),
             "purity": balanced(s.own, s.kind), **beside(s)}
            for s in shares(points, labels, combinations=combinations, k=k, shuffles=shuffles,
                            seed=seed)]
    return pd.DataFrame(rows, columns=["label", "among", "values", "purity", "shuffled", "spread",
                                       "excess", "points"])


def separates(table: pd.DataFrame) -> pd.Series:
    """Return which rows of `purity` are separated: excess >= max(0.05, 3 spread), bool [row]."""
    return table["excess"] >= np.fmax(LEAST, SPREADS * table["spread"])


def beside(found: Shares) -> dict[str, float]:
    """Return what stands beside a purity: `shuffled`, `spread`, `excess`, `points`."""
    shuffled = float(found.shuffled.mean())
    spread = float(found.shuffled.std(ddof=1)) if len(found.shuffled) > 1 else float("nan")
    return {"shuffled": shuffled, "spread": spread,
            "excess": balanced(found.own, found.kind) - shuffled, "points": len(found.own)}


def shares(
    points: np.ndarray, labels: Mapping[str, np.ndarray] | pd.DataFrame, *,
    combinations: np.ndarray | None, k: int, shuffles: int, seed: int,
) -> Iterator[Shares]:
    """Yield the agreement of single points on each label; see `purity`."""
    x = np.asarray(points)
    n = len(x)
    check(x.ndim == 2 and n >= 4, f"points have shape {x.shape}; expected (points, dimensions), "
          "at least 4 points", ProbeError)
    check(bool(np.isfinite(x).all()), "the points hold values that are not finite", ProbeError)
    check_count("k", k, 1, ProbeError)
    check_count("shuffles", shuffles, 1, ProbeError)
    given = {str(name): np.asarray(values) for name, values in labels.items()}
    lengths = {f"label {name!r}": len(values) for name, values in given.items()} | (
        {} if combinations is None else {"combinations": len(combinations)})
    for what, length in lengths.items():
        check(length == n, f"{what}: {length} values for {n} points; expected one each", ProbeError)
    rows, queries = sampled(n, seed)
    near = {ALL: nearest(x[rows], min(k, (len(rows) - 1) // 2), queries=queries)}
    groups = np.arange(len(rows))
    if combinations is not None:
        groups = pd.factorize(np.asarray(combinations)[rows].astype(str))[0]
        others = len(rows) - int(np.bincount(groups).max())
        if others:
            near[OTHER] = nearest(x[rows], min(k, others), queries=queries, apart=groups)
    rng = np.random.default_rng([seed, 1])
    for name, values in given.items():
        every = label_classes(name, values)
        kind = every[rows]
        if len(np.unique(kind[queries])) <= every.max():
            # Of a rare value nobody was asked: the others' purity would pass for the label's.
            for among in near:
                yield Shares(name, among, kind[queries], np.full(len(queries), np.nan),
                             np.full(shuffles, np.nan))
            continue
        dealt = shuffled_classes(kind, groups, rng, shuffles)
        for among, neighbours in near.items():
            apart = groups if among == OTHER else None
            anew = [(d[queries], _share(d, neighbours, queries, apart)) for d in dealt]
            yield Shares(
                name, among, kind[queries], _share(kind, neighbours, queries, apart),
                np.array([balanced(share, of) for of, share in anew] or [np.nan] * shuffles), anew)


def sampled(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which of n points are looked at, and which of these are asked, both in rising order.
    """
    rng = np.random.default_rng(checked_seed(seed))
    rows = np.arange(n) if n <= MOST_POINTS else np.sort(
        rng.choice(n, MOST_POINTS, replace=False))
    asked = np.arange(len(rows)) if len(rows) <= MOST_QUERIES else np.sort(
        rng.choice(len(rows), MOST_QUERIES, replace=False))
    return rows, asked


def balanced(share: np.ndarray, kind: np.ndarray) -> float:
    """Return the mean over values of the mean share of a value's points; NaN shares do not count.

    share  float64 [Q]; kind  int [Q]
    """
    known = np.isfinite(share)
    if not known.any():
        return float("nan")
    counts = np.bincount(kind[known])
    sums = np.bincount(kind[known], weights=share[known])
    return float((sums[counts > 0] / counts[counts > 0]).mean())


def _share(
    kind: np.ndarray, neighbours: np.ndarray, queries: np.ndarray, apart: np.ndarray | None
) -> np.ndarray:
    """Return the share of each query's neighbours that have its value, [Q]."""
    share = (kind[neighbours] == kind[queries][:, None]).mean(axis=1)
    if apart is None:
        return np.asarray(share)
    present = np.zeros((int(kind.max()) + 1, int(apart.max()) + 1), dtype=bool)
    present[kind, apart] = True
    return np.where(present.sum(axis=1)[kind[queries]] > 1, share, np.nan)
