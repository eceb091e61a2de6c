"""How sure is a score whose instances come in combinations, and are not independent?

A score is a function of three counts per class (hits, support, predicted). They are summed per
combination once; a bootstrap replicate draws combinations with replacement, so it is a weighted
sum of these counts, and a thousand replicates are one matrix product. Nothing is fitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, stdtrit

from latentcode.errors import ProbeError, check

LEVEL = 0.95
"""Level of the intervals."""
LEAST_CLUSTERS = 6
"""Fewest combinations that an interval is taken from: of 5 that all agree even the sign test is not
sure at this level, since 2 / 2^5 = 0.06."""


@dataclass(frozen=True)
class ClassCounts:
    """Counts per class; the last axis is the class, the axes before it are free.

    hits       instances that have the class and were given it
    support    instances that have the class
    predicted  instances that were given the class
    """

    hits: np.ndarray
    support: np.ndarray
    predicted: np.ndarray

    def total(self) -> ClassCounts:
        """Return the counts [class] summed over the clusters of counts [cluster, class]."""
        return self.weighted(np.ones((1, len(self.support))))._map(lambda c: c[0])

    def weighted(self, weights: np.ndarray) -> ClassCounts:
        """Return sum_c w[r, c] counts[c], [replicate, class], of counts [cluster, class]."""
        return self._map(lambda c: weights @ c)

    def _map(self, function: object) -> ClassCounts:
        assert callable(function)
        return ClassCounts(*(function(c) for c in (self.hits, self.support, self.predicted)))


def count_by_cluster(truth: np.ndarray, answer: np.ndarray, cluster: np.ndarray) -> ClassCounts:
    """Return the counts [cluster, class] of true and given classes.

    truth, answer  bool [N, class]; a single-label problem has one True per row
    cluster        int [N], from 0 to n_clusters - 1
    """
    n_clusters = int(cluster.max()) + 1

    def summed(indicator: np.ndarray) -> np.ndarray:
        out = np.zeros((n_clusters, indicator.shape[1]))
        np.add.at(out, cluster, indicator.astype(np.float64))
        return out

    return ClassCounts(summed(truth & answer), summed(truth), summed(answer))


def accuracy(counts: ClassCounts) -> np.ndarray:
    """Return sum_c hits_c / sum_c support_c, [...]; for single-label problems."""
    return np.asarray(counts.hits.sum(-1) / counts.support.sum(-1))


def balanced_accuracy(counts: ClassCounts) -> np.ndarray:
    """Return the mean of hits_c / support_c over the classes that occur, [...]."""
    occurs = counts.support > 0
    share = counts.hits / np.where(occurs, counts.support, 1.0)
    return np.asarray(share.sum(-1) / occurs.sum(-1))


def class_f1(counts: ClassCounts) -> np.ndarray:
    """Return F1_c = 2 hits_c / (support_c + predicted_c), [..., class].

    NaN where a class has no support: how well an absent class is found cannot be said.
    """
    whole = counts.support + counts.predicted
    f1 = 2.0 * counts.hits / np.where(whole > 0, whole, 1.0)
    return np.where(counts.support > 0, f1, np.nan)


def macro_f1(counts: ClassCounts) -> np.ndarray:
    """Return the mean of F1_c over the classes that occur, [...]."""
    f1 = class_f1(counts)
    return np.asarray(np.nansum(f1, axis=-1) / np.isfinite(f1).sum(-1))


Metric = Callable[[ClassCounts], np.ndarray]
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
        return resampled_ratios(self.sums, self.counts[..., None], weights)


def cluster_sums(x: np.ndarray, combination: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of x [N, ...] per combination, and how many instances each has."""
    numbers, cluster = np.unique(combination, return_inverse=True)
    sums = np.zeros((len(numbers), *x.shape[1:]))
    np.add.at(sums, cluster, x)
    return sums, np.bincount(cluster).astype(np.float64)


def resampled_means(sums: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the means [replicate, ...] of `cluster_sums`, weighted [replicate, cluster]."""
    return resampled_ratios(sums, sizes.reshape(-1, *[1] * (sums.ndim - 1)), weights)


def resampled_ratios(sums: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sum_c w[r, c] sums[c] / sum_c w[r, c] sizes[c], [replicate, ...].

    sizes  of the axes of sums, along some of which it may have a single entry

    NaN where a replicate has size zero.
    """
    total, size = (np.tensordot(weights, x, axes=1) for x in (sums, sizes))
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
    sums, sizes = cluster_sums(x, combination)
    weights = same_weights(len(sizes), n_bootstrap, seed)
    low, high = percentile_interval(resampled_means(sums, sizes, weights), len(sizes))
    return sums.sum(0) / sizes.sum(), low, high, len(sizes)


@lru_cache(maxsize=4)
def same_weights(n_clusters: int, n_replicates: int, seed: int) -> np.ndarray:
    """Return the weights of a seed, which hundreds of rows of a table share."""
    weights = resample(n_clusters, n_replicates, np.random.default_rng(seed))
    weights.flags.writeable = False
    return weights


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
