"""By how much is what a question found above its controls, over the same held-out problems?

A score of features f and of a control c, on the same problems, differs by

    d = s(f) - s(c),    with the interval [q_a, q_(1 - a)] of d*_r = s*_r(f) - s*_r(c),

where replicate r draws whole combinations with replacement, the same ones for both scores, so that
what makes a combination hard for both is in neither difference. Where c is shuffled labels, the
replicates span the shuffles, too (`Resampled.of_shuffles`). The quantiles are those of
`percentile_interval`. Nothing is fitted again. The best constant answer (`chance`) is chosen once,
on all problems: the choice is not resampled, so that these intervals are a little too narrow.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from latentcode.errors import check_choice
from latentcode.probes.common.bootstrap import (
    LEAST_CLUSTERS,
    mean_and_interval,
    percentile_interval,
)

OF = ("alignment", "patch", "search", "order", "features")
"""What a control is taken away from; a table has one of these columns."""
MEASURED = ("quantity", "against", "value", "low", "high", "n", "n_clusters")
"""The columns of every table of contrasts, after those that name the place."""
WORDS: Mapping[str, str] = {
    "shuffled": "shuffled labels", "untrained": "the untrained model",
    "residual": "the residual stream", "mean_residual": "the stream's mean over tokens",
    "bag": "the bag of tokens",
    "chance": "the best constant answer",
    "largest other": "the largest cosine of either with a third",
    "random": "random ones", "whole": "all dimensions"}
"""Controls in words."""
TELLING = ("residual", "mean_residual", "bag", "largest other", "whole")
"""Controls that may tell something of the label by themselves; so does another layer."""
MOST_SAID = 6
"""Sentences that a result begins with; the rest stands in the table."""
NO_INTERVAL = "too few combinations for an interval"
NO_CONTROL = "controls stand beside in the tables: there is no difference over the same problems"
LEFT_OUT = "no contrasts: nothing was compared with a control over the same problems"


def contrast_columns(*place: str) -> tuple[str, ...]:
    """Return the columns of a table of contrasts, those that name the place first."""
    return (*place, *MEASURED)


@dataclass(frozen=True)
class Resampled:
    """A score on the problems as they are, and on resampled combinations.

    value       a number, or several [...]
    replicates  float64 [R, ...]; NaN where a replicate has no score
    n, n_clusters  problems and combinations
    alone       replicates that its own interval is of, where differences have others
    """

    value: Any
    replicates: np.ndarray
    n: int
    n_clusters: int
    alone: np.ndarray | None = None

    def __sub__(self, other: Resampled) -> Resampled:
        """Return the paired difference of two scores, which were resampled by the same draws."""
        return Resampled(self.value - other.value, self.replicates - other.replicates, self.n,
                         self.n_clusters)

    @staticmethod
    def of_shuffles(scores: Sequence[Resampled], rng: np.random.Generator) -> Resampled:
        """Return the mean of the scores s_k of K shuffles, resampled over problems and shuffles.

            m*_r + tau sqrt(1 + 1 / K) t_r,    m*_r = 1/K sum_k s*_r(k)
            tau^2 = 1 / (K - 1) sum_k [(s_k - m)^2 - Var_r(s*_r(k) - m*_r)], at least 0

        with t_r drawn from Student's distribution of K - 1 degrees of freedom. tau^2 is by how much
        shuffles vary beyond the problems that they are scored on; where true labels tell nothing,
        their score is one more draw. The interval of the shuffles' score itself takes one of them
        at random in each replicate. Differences from a single shuffle have no interval.
        """
        values = np.stack([np.asarray(score.value, dtype=np.float64) for score in scores])
        replicates = np.stack([score.replicates for score in scores])
        k, n_bootstrap = replicates.shape[:2]
        mean = replicates.mean(axis=0)
        if k == 1:
            return replace(scores[0], replicates=np.full_like(mean, np.nan), alone=mean)
        sampled = np.ma.masked_invalid(replicates - mean).var(axis=1).filled(np.nan)
        between = (np.square(values - values.mean(axis=0)) - sampled).sum(axis=0) / (k - 1)
        drawn = rng.standard_t(k - 1, size=(n_bootstrap, *[1] * between.ndim))
        spread = np.sqrt(np.maximum(between, 0.0) * (1.0 + 1.0 / k))
        one = replicates[rng.integers(k, size=n_bootstrap), np.arange(n_bootstrap)]
        return replace(scores[0], value=values.mean(axis=0), replicates=mean + spread * drawn,
                       alone=one)

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the 95 % interval, [...] each."""
        return percentile_interval(self.replicates if self.alone is None else self.alone,
                                   self.n_clusters)

    def row(self) -> dict[str, Any]:
        """Return `value`, a number, its interval `low`, `high`, `n` and `n_clusters`."""
        low, high = self.interval()
        return {"value": self.value, "low": float(low), "high": float(high), "n": self.n,
                "n_clusters": self.n_clusters}


@dataclass(frozen=True, eq=False)
class Contrasts:
    """By how much something is above its controls, over the same problems.

    table   one row per place, `quantity` (the metric), what is measured (the column of `OF`) and
            what it is measured `against`: `value`, the difference, its 95 % interval `low`,
            `high`, which resamples whole combinations, problems `n` and combinations `n_clusters`
    reason  why there are none, where the table is empty
    """

    table: pd.DataFrame
    reason: str = LEFT_OUT

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return self.reason if self.empty else self.table.to_string(index=False)

    @property
    def empty(self) -> bool:
        """Whether there is none."""
        return self.table.empty

    @property
    def of(self) -> str:
        """The column that names what the controls are taken away from."""
        return next(name for name in OF if name in self.table)

    def against(self, other: str, **place: object) -> pd.DataFrame:
        """Return the rows against one control whose columns have these values."""
        check_choice("control", other, list(dict.fromkeys(self.table["against"])) or [other])
        rows = self.table[self.table["against"] == other]
        for column, value in place.items():
            rows = rows[rows[column] == value]
        return rows

    def sentences(
        self, best_of: Sequence[str] = ("layer",), told: Mapping[str, Sequence[Any]] | None = None,
    ) -> list[str]:
        """Say whether each is above its controls, by how much and where.

        best_of  columns that name places, of which the one is quoted that is furthest above its
                 controls, and surely so if there is one
        told     column -> the entries that are said; where a table has none of them, all are
        """
        if self.empty:
            return [self.reason]
        rows = self.table.dropna(subset="value")
        for column, wanted in (told or {}).items():
            chosen = rows[rows[column].isin(list(wanted))]
            rows = chosen if len(chosen) else rows
        if rows.empty:
            return ["no contrasts: nothing that is compared varies"]
        place = [name for name in rows if name not in (*MEASURED[1:], *best_of)
                 and (name in ("quantity", self.of) or rows[name].nunique(dropna=False) > 1)]
        found = [(dict(zip(map(str, place), key, strict=True)), *_best(block, best_of))
                 for key, block in rows.groupby(place, sort=False, dropna=False)]
        found.sort(key=lambda one: _effect(one[1]), reverse=True)
        above = sum(_effect(block)[0] for _, block, _ in found)
        # What is the same everywhere need not be said, but for the layer.
        told_of = [name for name in best_of if name in rows and (
            name == "layer" or rows[name].nunique() > 1)]
        said = [_sentence(named, block, among, self.of, told_of)
                for named, block, among in found[:MOST_SAID]]
        return said if len(found) == 1 else [
            *said, f"{above} of {len(found)} surely above their controls (all in .contrasts)"]


def _best(rows: pd.DataFrame, best_of: Sequence[str]) -> tuple[pd.DataFrame, int]:
    """Return the rows of the place with the largest effect, sure ones first, and of how many."""
    where = [name for name in best_of if name in rows]
    if not where:
        return rows, 1
    places = [block for _, block in rows.groupby(where, sort=False, dropna=False)]
    return max(places, key=_effect), len(places)


def _effect(rows: pd.DataFrame) -> tuple[bool, float]:
    """Return whether all intervals are above 0, and the smallest difference, against what tells
    nothing of the label.

    What tells something of it by itself, as the residual stream or another layer, is compared, but
    does not choose the place: that which falls least below the stream is often where nothing is.
    """
    controls = rows[~rows["against"].isin(TELLING) & ~rows["against"].str.startswith("layer ")]
    chosen = controls if len(controls) else rows
    return bool((chosen["low"] > 0.0).all()), float(chosen["value"].min())


def _sentence(
    named: Mapping[str, Any], rows: pd.DataFrame, among: int, of: str, told_of: Sequence[str]
) -> str:
    """Say the contrasts of one quantity of one thing, at the best of its places."""
    first = rows.iloc[0]
    inside = [str(named["quantity"]).replace("_", " ")]
    inside += [f"{name} {_plain(value)}" for name, value in named.items()
               if name not in ("quantity", "label", of)]
    inside += [f"{name} {_plain(first[name])}" for name in told_of if pd.notna(first[name])]
    if among > 1:
        inside.append(f"the best of {among}")
    inside += [f"{int(first['n'])} problems", f"{int(first['n_clusters'])} combinations"]
    label = f"{named['label']}: " if "label" in named else ""
    return f"{label}{named[of]} {'; '.join(_compared(rows))} ({', '.join(inside)})"


def _compared(rows: pd.DataFrame) -> Iterator[str]:
    """Say what is above, what is not surely above, and what is below which control."""
    above, below = rows["low"] > 0.0, rows["high"] < 0.0
    for said, which, sign in (("above", above, 1), ("not surely above", ~above & ~below, 1),
                              ("below", below, -1)):
        others = []
        for row in rows[which].to_dict("records"):
            low, high = sorted((sign * row["low"], sign * row["high"]))
            interval = f"[{low:.2f}, {high:.2f}]" if low == low else f"({_no_interval(row)})"
            others.append(f"{WORDS.get(row['against'], row['against'])} by "
                          f"{sign * row['value']:.2f} {interval}")
        if others:
            yield f"{said} {', '.join(others)}"


def _no_interval(row: Mapping[Hashable, Any]) -> str:
    """Say why a difference has no interval."""
    return NO_INTERVAL if row["n_clusters"] < LEAST_CLUSTERS else "a single shuffle has no interval"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def paired_rates(
    ours: pd.DataFrame, theirs: pd.DataFrame, rates: Sequence[str], n_bootstrap: int, seed: int
) -> list[dict[str, Any]]:
    """Return, of each rate, mean_i (x_i - y_i) over the instances i that both count.

    ours, theirs  a row per instance: its `number`, `combination` and outcomes, columns `rates`
    """
    _, mine, others = np.intersect1d(ours["number"], theirs["number"], assume_unique=True,
                                     return_indices=True)
    columns = list(rates)
    paired = ours[columns].to_numpy()[mine] - theirs[columns].to_numpy()[others]
    value, low, high, n_clusters = mean_and_interval(
        paired, ours["combination"].to_numpy()[mine], n_bootstrap, seed)
    return [{"value": value[i], "low": low[i], "high": high[i], "n": len(mine),
             "n_clusters": n_clusters} for i in range(len(rates))]


def table_of(rows: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]],
             columns: Sequence[str]) -> Contrasts:
    """Return rows as contrasts with these columns."""
    return Contrasts(pd.DataFrame(list(rows), columns=list(columns)))


NONE = Contrasts(pd.DataFrame(columns=list(contrast_columns("features"))), NO_CONTROL)
"""The contrasts of a question without a control."""
