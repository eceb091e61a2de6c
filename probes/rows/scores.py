"""How well does a probe answer, and how well does one that has read nothing?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from latentcode.probes.common.bootstrap import (
    ClassCounts,
    accuracy,
    cluster_sums,
    count_by_cluster,
    macro_f1,
    percentile_interval,
    resampled_means,
)
from latentcode.probes.common.labels import Target
from latentcode.probes.decoding.logistic import LEAST_PROBABILITY, LogisticProbe
from latentcode.probes.decoding.of_codes import chance

LOG_LOSS = "log_loss"


def balanced_accuracy(counts: ClassCounts) -> np.ndarray:
    """Return the mean of hits_c / support_c over the classes that occur, [...]."""
    occurs = counts.support > 0
    share = counts.hits / np.where(occurs, counts.support, 1.0)
    return np.asarray(share.sum(-1) / occurs.sum(-1))


SINGLE = {"accuracy": accuracy, "balanced_accuracy": balanced_accuracy, "macro_f1": macro_f1}
GROUP = {"f1": macro_f1}


def scored(
    probe: LogisticProbe, x: np.ndarray, target: Target, clusters: np.ndarray, weights: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield each metric of a probe on held-out points x [N, d], with its interval.

    clusters  int [N], the combination of each instance
    weights   float64 [replicate, cluster], how often a replicate draws each combination
    """
    counts = count_by_cluster(target.heldout, probe.predict(x), clusters)
    for name, metric in (GROUP if target.multilabel else SINGLE).items():
        yield _with_interval(name, metric(counts.total()), metric(counts.weighted(weights)),
                             len(counts.support))
    if not target.multilabel:
        losses = probe.log_losses(x, target.heldout)
        yield _with_interval(LOG_LOSS, losses.mean(), *cluster_means(losses, clusters, weights))


def cluster_means(
    values: np.ndarray, clusters: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return the mean of values [N] in each replicate, and the number of combinations."""
    sums, sizes = cluster_sums(values, clusters)
    return resampled_means(sums, sizes, weights), len(sizes)


def _with_interval(
    name: str, value: np.ndarray, replicates: np.ndarray, n_clusters: int
) -> dict[str, Any]:
    low, high = percentile_interval(replicates, n_clusters)
    return {"metric": name, "value": float(value), "low": float(low), "high": float(high)}


def nulls(target: Target) -> dict[str, tuple[float, float]]:
    """Return metric -> what an answer that has read nothing scores on the held-out instances.

    First the training prior's: its most common class, or its shares p as probabilities; for a
    group every class at random with its share. Then that of the best constant answer, which
    knows the held-out shares q: an oracle, and so no bar that an uninformed probe would reach.
    """
    p, q = target.train.mean(axis=0), target.heldout.mean(axis=0)
    occurs = q > 0
    if target.multilabel:
        f1 = 2 * p * q / np.where(occurs, p + q, 1.0)
        return {"f1": (float(f1[occurs].mean()), chance(target.heldout, "f1"))}
    most, n = int(p.argmax()), int(occurs.sum())
    return {
        "accuracy": (float(q[most]), chance(target.heldout, "accuracy")),
        "balanced_accuracy": (float(occurs[most]) / n, 1.0 / n),
        "macro_f1": (float(2 * q[most] / (1 + q[most]) / n), chance(target.heldout, "macro_f1")),
        LOG_LOSS: (_cross_entropy(q, p), _cross_entropy(q, q))}


def _cross_entropy(q: np.ndarray, p: np.ndarray) -> float:
    return float(-(q * np.log(np.maximum(p, LEAST_PROBABILITY))).sum())
