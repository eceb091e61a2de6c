"""Scores of problems in combinations: intervals, differences from controls, shuffled labels.

A score is a function of sums over instances, taken per combination once. A bootstrap replicate
draws combinations with replacement, so it is a weighted sum of these, and a thousand replicates are
one matrix product; nothing is fitted again. Scores of features f and of a control c differ by

    d = s(f) - s(c),    with the interval [q_a, q_(1 - a)] of d*_r = s*_r(f) - s*_r(c),

where replicate r draws the same combinations for both, so that what makes a combination hard for
both is not in the difference. Where c is shuffled labels, the replicates span the shuffles, too
(`Resampled.of_shuffles`). The best constant answer (`chance`) is chosen once, on all problems: the
choice is not resampled, so that its intervals are a little too narrow.

Shuffled labels are the null hypothesis that codes tell nothing of a label, combinations aside. A
shuffle keeps what a label has to do with combinations, and takes away what it has to do with codes:

1. The labels of whole combinations change places among combinations of equal size. A label that is
   constant within every combination moves with it whatever the sizes.
2. Labels within each combination change places.

Under the null hypothesis all these arrangements are equally likely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import gammaln, ndtr, stdtrit

from latentcode.errors import ProbeError, check, check_choice, check_count

LEVEL = 0.95
"""Level of the intervals."""
LEAST_CLUSTERS = 6
"""Fewest combinations that an interval is taken from: of 5 that all agree even the sign test is not
sure at this level, since 2 / 2^5 = 0.06."""


def count_by_cluster(truth: np.ndarray, answer: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Return the counts [3, cluster, class] of true and given classes: hits, those that have the
    class and were given it; support, that have it; and those that were given it.

    truth, answer  bool [N, class]; a single-label problem has one True per row
    cluster        int [N], from 0 to n_clusters - 1

    Metrics take them summed over clusters, `counts.sum(1)`, or resampled, `weights @ counts`.
    """
    counts = np.zeros((3, int(cluster.max()) + 1, truth.shape[1]))
    for of_clusters, indicator in zip(counts, (truth & answer, truth, answer), strict=True):
        np.add.at(of_clusters, cluster, indicator.astype(np.float64))
    return counts


def accuracy(counts: np.ndarray) -> np.ndarray:
    """Return sum_c hits_c / sum_c support_c, [...]; for single-label problems."""
    hits, support, _ = counts
    return np.asarray(hits.sum(-1) / support.sum(-1))


def balanced_accuracy(counts: np.ndarray) -> np.ndarray:
    """Return the mean of hits_c / support_c over the classes that occur, [...]."""
    hits, support, _ = counts
    share = hits / np.where(support > 0, support, 1.0)
    return np.asarray(share.sum(-1) / (support > 0).sum(-1))


def class_f1(counts: np.ndarray) -> np.ndarray:
    """Return F1_c = 2 hits_c / (support_c + predicted_c), [..., class].

    NaN where a class has no support: how well an absent class is found cannot be said.
    """
    hits, support, predicted = counts
    whole = support + predicted
    return np.where(support > 0, 2.0 * hits / np.where(whole > 0, whole, 1.0), np.nan)


def macro_f1(counts: np.ndarray) -> np.ndarray:
    """Return the mean of F1_c over the classes that occur, [...]; NaN where none does."""
    f1 = class_f1(counts)
    n_occurring = np.isfinite(f1).sum(-1)
    return np.asarray(np.nansum(f1, axis=-1) / np.where(n_occurring > 0, n_occurring, np.nan))


Metric = Callable[[np.ndarray], np.ndarray]
"""Of counts [3, ..., class] (`count_by_cluster`), one score for each [...]."""
SINGLE: Mapping[str, Metric] = {
    "accuracy": accuracy, "macro_f1": macro_f1, "balanced_accuracy": balanced_accuracy}
"""Metrics of labels with one class for each problem."""
GROUP: Mapping[str, Metric] = {"f1": macro_f1}
"""Metrics of groups, of which a problem has several."""


def chance(heldout: np.ndarray, metric: str) -> float:
    """Return the best score that any constant answer reaches on held-out labels [N, class].

    With p_c the share of class c: accuracy max_c p_c; macro F1 max_c 2 p_c / (1 + p_c) divided
    by the number of classes that occur; balanced accuracy 1 divided by it; multi-label F1 the mean
    over occurring classes of 2 p_c / (1 + p_c), reached by always giving every class.
    """
    share = heldout.mean(axis=0)
    share = share[share > 0]
    f1 = 2.0 * share / (1.0 + share)
    return float({"accuracy": share.max(), "macro_f1": f1.max() / len(share),
                  "balanced_accuracy": 1.0 / len(share), "f1": f1.mean()}[metric])


@dataclass(frozen=True)
class LabelSums:
    """Sums of points per combination and class: means of any resampling follow from them.

    sums    float64 [cluster, class, d]
    counts  float64 [cluster, class]
    """

    sums: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, truth: np.ndarray, clusters: np.ndarray) -> LabelSums:
        """Sum points x [N, d] with classes truth bool [N, class] in clusters int [N]."""
        n_clusters = int(clusters.max()) + 1
        sums = np.zeros((n_clusters, truth.shape[1], x.shape[1]))
        counts = np.zeros((n_clusters, truth.shape[1]))
        row, column = np.nonzero(truth)
        np.add.at(sums, (clusters[row], column), x[row])
        np.add.at(counts, (clusters[row], column), 1.0)
        return cls(sums, counts)

    def means(self) -> np.ndarray:
        """Return the mean of each class, [class, d]; NaN without instances."""
        return np.asarray(self.resampled(np.ones((1, len(self.counts))))[0])

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """Return the means [replicate, class, d] with clusters weighted [replicate, cluster].

        NaN where a replicate has no instance of a class.
        """
        return resampled_ratios(self.sums, self.counts, weights)


def cluster_sums(x: np.ndarray, combination: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of x [N, ...] per combination, and how many instances each has."""
    numbers, cluster = np.unique(combination, return_inverse=True)
    sums = np.zeros((len(numbers), *x.shape[1:]))
    np.add.at(sums, cluster, x)
    return sums, np.bincount(cluster).astype(np.float64)


def resampled_ratios(sums: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sum_c w[r, c] sums[c] / sum_c w[r, c] sizes[c], [replicate, ...].

    sizes  of the first axes of sums, along some of which it may have a single entry

    NaN where a replicate has size zero.
    """
    total, size = (np.tensordot(weights, x, axes=1) for x in (sums, sizes))
    size = size.reshape(*size.shape, *[1] * (total.ndim - size.ndim))
    return np.divide(total, size, out=np.full(total.shape, np.nan), where=size != 0)


def mean_and_interval(
    x: np.ndarray, combination: np.ndarray, n_bootstrap: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the means of x [N, ...] over instances, their intervals, and how many combinations.

    The same seed draws the same combinations, so that intervals of the same instances can be
    compared. Without instances all numbers are NaN.
    """
    if not len(x):
        nothing = np.full(x.shape[1:], np.nan)
        return nothing, nothing, nothing, 0
    weights = same_weights(len(np.unique(combination)), n_bootstrap, seed)
    mean = Resampled.of_mean(x, combination, weights)
    return mean.value, *mean.interval(), mean.n_clusters


@lru_cache(maxsize=4)
def same_weights(n_clusters: int, n_replicates: int, seed: int) -> np.ndarray:
    """Return the weights of a seed, which hundreds of rows of a table share."""
    weights = resample(n_clusters, n_replicates, np.random.default_rng(seed))
    weights.flags.writeable = False
    return weights


def check_bootstrap(n_bootstrap: object) -> None:
    """Raise `ProbeError` for fewer than 100 replicates, whose quantiles would be mostly noise."""
    check_count("n_bootstrap", n_bootstrap, 100, ProbeError)


def resample(n_clusters: int, n_replicates: int, rng: np.random.Generator) -> np.ndarray:
    """Return how often each cluster is drawn in each replicate, float64 [replicate, cluster]."""
    check(n_clusters >= 1, "there are no combinations to resample", ProbeError)
    uniform = np.full(n_clusters, 1.0 / n_clusters)
    return rng.multinomial(n_clusters, uniform, size=n_replicates).astype(np.float64)


def percentile_interval(replicates: np.ndarray, n_clusters: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the quantiles [q_a, q_(1 - a)] of replicates [R, ...] over the first axis.

    a = Phi(sqrt(n / (n - 1)) t_(n - 1)^-1((1 - LEVEL) / 2)): the "expanded" percentile interval
    (T. Hesterberg, The American Statistician 69, 2015, section 5.4), because the plain one is
    too narrow for few clusters. With fewer than `LEAST_CLUSTERS` both are NaN.
    """
    if n_clusters < LEAST_CLUSTERS:
        nothing = np.full(replicates.shape[1:], np.nan)
        return nothing, nothing
    t = stdtrit(n_clusters - 1, (1.0 - LEVEL) / 2.0)
    alpha = float(ndtr(np.sqrt(n_clusters / (n_clusters - 1)) * t))
    absent = np.isnan(replicates).all(axis=0)
    low, high = np.nanquantile(np.where(absent, 0.0, replicates), [alpha, 1.0 - alpha], axis=0)
    return np.where(absent, np.nan, low), np.where(absent, np.nan, high)


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
    def of_mean(x: np.ndarray, clusters: np.ndarray, weights: np.ndarray) -> Resampled:
        """Return the mean of x [N, ...] over problems, of clusters weighted [R, cluster]."""
        sums, sizes = cluster_sums(x, clusters)
        return Resampled(sums.sum(0) / sizes.sum(), resampled_ratios(sums, sizes, weights), len(x),
                         len(sizes))

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
        single = replicates[rng.integers(k, size=n_bootstrap), np.arange(n_bootstrap)]
        return replace(scores[0], value=values.mean(axis=0), replicates=mean + spread * drawn,
                       alone=single)

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
    reason: str = "no contrasts: nothing was compared with a control over the same problems"

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
        place = {"against": other, **place}
        return self.table[(self.table[list(place)] == pd.Series(place)).all(axis=1)]

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
        places = [name for name in best_of if name in rows]
        best = []
        for key, block in rows.groupby(place, sort=False, dropna=False):
            there = [rows_of_place for _, rows_of_place in block.groupby(
                places, sort=False, dropna=False)] if places else [block]
            best.append((dict(zip(map(str, place), key, strict=True)), max(there, key=_effect),
                         len(there)))
        best.sort(key=lambda entry: _effect(entry[1]), reverse=True)
        above = sum(_effect(block)[0] for _, block, _ in best)
        # What is the same everywhere need not be said, but for the layer.
        quoted = [name for name in places if name == "layer" or rows[name].nunique() > 1]
        sentences = [_sentence(named, block, among, self.of, quoted)
                     for named, block, among in best[:MOST_SAID]]
        return sentences if len(best) == 1 else [
            *sentences, f"{above} of {len(best)} surely above their controls (all in .contrasts)"]


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
    named: Mapping[str, Any], rows: pd.DataFrame, among: int, of: str, quoted: Sequence[str]
) -> str:
    """Say the contrasts of one quantity of one thing, at the best of its places."""
    compared = []
    above, below = rows["low"] > 0.0, rows["high"] < 0.0
    for relation, which, sign in (("above", above, 1), ("not surely above", ~above & ~below, 1),
                                  ("below", below, -1)):
        others = []
        for row in rows[which].to_dict("records"):
            low, high = sorted((sign * row["low"], sign * row["high"]))
            interval = f"[{low:.2f}, {high:.2f}]" if low == low else (
                "(too few combinations for an interval)" if row["n_clusters"] < LEAST_CLUSTERS
                else "(a single shuffle has no interval)")
            others.append(f"{WORDS.get(row['against'], row['against'])} by "
                          f"{sign * row['value']:.2f} {interval}")
        if others:
            compared.append(f"{relation} {', '.join(others)}")
    first = rows.iloc[0]
    place = {name: value for name, value in named.items() if name not in ("quantity", "label", of)}
    place |= {name: first[name] for name in quoted if pd.notna(first[name])}
    inside = [str(named["quantity"]).replace("_", " "), *(
        f"{name} {f'{value:g}' if isinstance(value, float) else value}"
        for name, value in place.items()), *([f"the best of {among}"] if among > 1 else []),
        f"{int(first['n'])} problems", f"{int(first['n_clusters'])} combinations"]
    label = f"{named['label']}: " if "label" in named else ""
    return f"{label}{named[of]} {'; '.join(compared)} ({', '.join(inside)})"


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
    *ends, n_clusters = mean_and_interval(
        paired, ours["combination"].to_numpy()[mine], n_bootstrap, seed)
    return [{"value": value, "low": low, "high": high, "n": len(mine), "n_clusters": n_clusters}
            for value, low, high in zip(*ends, strict=True)]


NONE = Contrasts(
    pd.DataFrame(columns=list(contrast_columns("features"))),
    "controls stand beside in the tables: there is no difference over the same problems")
"""The contrasts of a question without a control."""

N_SHUFFLES = 10
"""Times that labels are shuffled unless the caller says otherwise."""
LEAST_ARRANGEMENTS = 20
"""With fewer distinct arrangements, the true one among them, there is no null: 1 in 20 is 5 %."""


def no_null(label: str) -> str:
    """Return the sentence that says that a label has no null."""
    return (f"Label {label}: shuffled labels are no control, for fewer than {LEAST_ARRANGEMENTS} "
            "arrangements of its values over the combinations differ.")


def has_null(y: np.ndarray, groups: np.ndarray) -> bool:
    """Whether enough arrangements of classes [N] or indicators [N, class] differ for a null.

    Of m combinations of which k_v have the labels v (up to their order), m! / prod_v k_v! orders
    differ; of n instances of which n_c have class c, n! / prod_c n_c!.
    """
    kind = np.unique(y, axis=0, return_inverse=True)[1].ravel()
    of_combination, _ = _constant_classes(kind, groups)
    if of_combination is not None:
        log_n = _log_multinomial(np.unique(of_combination, return_counts=True)[1])
    else:
        log_n = 0.0
        for same_size in _by_size(groups):
            labels = np.sort(kind[same_size], axis=1)
            log_n += _log_multinomial(np.unique(labels, axis=0, return_counts=True)[1])
            log_n += _log_multinomial((labels[:, :, None] == np.unique(labels)).sum(axis=1))
    return bool(log_n >= np.log(LEAST_ARRANGEMENTS) - 1e-9)


def shuffled_classes(
    kind: np.ndarray, groups: np.ndarray, rng: np.random.Generator, times: int
) -> np.ndarray:
    """Return classes int [N] of instances in combinations int [N], shuffled: [times, N].

    [0, N] where the label has no null.
    """
    if not has_null(kind, groups):
        return np.empty((0, len(kind)), dtype=kind.dtype)
    of_combination, combination = _constant_classes(kind, groups)
    if of_combination is not None:
        return np.stack([rng.permutation(of_combination)[combination] for _ in range(times)])
    shuffled = np.empty((times, len(kind)), dtype=kind.dtype)
    for same_size in _by_size(groups):
        for arrangement in shuffled:
            arrangement[same_size] = rng.permuted(kind[rng.permutation(same_size)], axis=1)
    return shuffled


def shuffled_labels(
    y: np.ndarray, groups: np.ndarray, rng: np.random.Generator, times: int
) -> np.ndarray:
    """Return indicators bool [N, class], shuffled as `shuffled_classes`: [times or 0, N, class]."""
    kinds, kind = np.unique(y, axis=0, return_inverse=True)
    return np.asarray(kinds[shuffled_classes(kind.ravel(), groups, rng, times)])


def rows_of_others(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return, for each instance, one of another combination, int [N].

    What is read there tells nothing of the instance, and depends on the combination as much as
    what is read here. A combination takes the instances of one other in random order, some twice
    where these are fewer; where there is one combination, its own.
    """
    _, combination = np.unique(groups, return_inverse=True)
    members = [rng.permutation(np.flatnonzero(combination == number))
               for number in range(combination.max(initial=-1) + 1)]
    order = rng.permutation(len(members))
    rows = np.arange(len(groups))
    for mine, other in zip(order, np.roll(order, 1), strict=True):
        rows[members[mine]] = np.resize(members[other], len(members[mine]))
    return rows


def _constant_classes(
    kind: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the class of each combination, None unless it has a single one, and the combination
    of each instance."""
    _, first, combination = np.unique(groups, return_index=True, return_inverse=True)
    constant = bool((kind == kind[first][combination]).all())
    return kind[first] if constant else None, combination


def _by_size(groups: np.ndarray) -> list[np.ndarray]:
    """Return the instances of the combinations of each size, int [combination, size] each."""
    _, combination, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(combination, kind="stable")
    size = sizes[combination[order]]
    return [order[size == each].reshape(-1, each) for each in np.unique(sizes)]


def _log_multinomial(counts: np.ndarray) -> float:
    """Return log((sum_c n_c)! / prod_c n_c!) of counts [..., c], summed over the axes before."""
    return float((gammaln(counts.sum(axis=-1) + 1) - gammaln(counts + 1).sum(axis=-1)).sum())


ROUNDING = 1e-5
"""Points whose differences are below this share of their size differ by the rounding of float32:
the code of a token to itself in the first layer, for instance, may not depend on the instance."""


def varies(x: np.ndarray) -> bool:
    """Return whether points [N, d] differ by more than the rounding of float32."""
    return bool(np.abs(x - x.mean(axis=0, dtype=np.float64)).max() > ROUNDING * np.abs(x).max())
