"""Is there operation in features beyond what the answer tells of it?

A code that determines the answer tells something of the rule, as the answer does. So two probes
are compared: one that knows the answer, and one that knows the answer and the features. What is
known enters as log p(class | answer), the table of the training split, as a linear probe on
[one-hot answer] would learn it; with answer and operands it is log p(class | answer, operands),
which no linear probe on one-hot vectors could learn: they determine the answer together with the
rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from latentcode.probes.common.bootstrap import cluster_sums, resampled_means
from latentcode.probes.common.contrasts import Resampled
from latentcode.probes.common.labels import Target
from latentcode.probes.decoding.logistic import LEAST_PROBABILITY, LogisticProbe, fit_probe
from latentcode.probes.decoding.row_labels import conditions, is_operation

TABLE_INSTANCES = 65_536
"""Instances of the training split that the tables are counted on; no model reads them."""


@dataclass(frozen=True)
class Known:
    """What is known beside features: log p(class | known labels), float64 [N, class].

    given   the name of what is known
    losses  of the probe that has nothing else, on the held-out instances, nats, float64 [N]
    """

    given: str
    train: np.ndarray
    heldout: np.ndarray
    losses: np.ndarray


def log_posteriors(
    label: str, known: Sequence[str], target: Target, counted: pd.DataFrame,
    frames: Sequence[pd.DataFrame],
) -> list[np.ndarray]:
    """Return log p(class | known labels) of the instances of some frames, float64 [N, class].

    counted  instances whose classes and known labels are counted; to each cell the prior is
             added, with the weight of one instance
    """
    known = list(known)
    together = pd.concat([counted[known], *(frame[known] for frame in frames)])
    cells = together.groupby(known, sort=False, observed=True).ngroup().to_numpy()
    index = {value: i for i, value in enumerate(target.classes)}
    # A class of few training instances alone may be missing among those that are decoded.
    seen = counted[label].isin(index).to_numpy()
    classes = counted.loc[seen, label].map(index).to_numpy()
    counts = np.zeros((cells.max() + 1, len(index)))
    np.add.at(counts, (cells[:len(counted)][seen], classes), 1.0)
    prior = counts.sum(axis=0) / counts.sum()
    share = (counts + prior) / (counts.sum(axis=1, keepdims=True) + 1.0)
    table = np.log(np.maximum(share, LEAST_PROBABILITY))
    ends = np.cumsum([len(counted), *map(len, frames)])
    return [table[cells[first:last]] for first, last in pairwise(ends)]


def known_beside(
    targets: Mapping[str, Target], frames: Sequence[pd.DataFrame], groups: np.ndarray, seed: int
) -> dict[str, list[Known]]:
    """Return what may be known beside features, by label, of those of the operation.

    frames  what training, held-out and counted instances are asked (`row_labels.asked`)
    """
    train, heldout, counted = frames
    found: dict[str, list[Known]] = {}
    for label, target in targets.items():
        if (target.multilabel or not target.varies or label not in counted
                or not is_operation(label)):
            continue
        for given, columns in conditions(counted).items():
            x, x_heldout = log_posteriors(label, columns, target, counted, (train, heldout))
            losses = _fit(x, target, groups, seed).log_losses(x_heldout, target.heldout)
            found.setdefault(label, []).append(Known(given, x, x_heldout, losses))
    return found


def gains(
    known: Known, train: np.ndarray, heldout: np.ndarray, target: Target, groups: np.ndarray,
    clusters: np.ndarray, weights: np.ndarray, *, shuffled: bool, seed: int,
) -> list[tuple[dict[str, Any], Resampled | None]]:
    """Return what features [N, d] add to what is known, a row and the gain by itself; if
    `shuffled`, also what another instance's add, with the same penalty: reading nothing loses a
    little.

    groups, clusters  the combination of each training and held-out instance
    weights  float64 [replicate, held-out combination], the bootstrap's
    """
    about = {"given": known.given, "known": float(known.losses.mean())}
    if not train.shape[1]:
        nothing = dict.fromkeys(("gain", "low", "high", "with_features"), np.nan)
        return [(about | nothing | {"converged": True}, None)] * (2 if shuffled else 1)
    rng = np.random.default_rng([seed, 3])
    read = [(train, heldout)]
    if shuffled:
        read.append((train[rng.permutation(len(train))], heldout[rng.permutation(len(heldout))]))
    found: list[tuple[dict[str, Any], Resampled | None]] = []
    how: dict[str, Any] = {}
    for features, features_heldout in read:
        probe = _fit(np.concatenate([known.train, features], axis=1), target, groups, seed, **how)
        how = {"penalties": [probe.penalty]}
        losses = probe.log_losses(np.concatenate([known.heldout, features_heldout], axis=1),
                                  target.heldout)
        sums, sizes = cluster_sums(known.losses - losses, clusters)
        gain = Resampled(float((known.losses - losses).mean()),
                         resampled_means(sums, sizes, weights), len(losses), len(sizes))
        row = gain.row()
        found.append(({**about, "gain": row["value"], "low": row["low"], "high": row["high"],
                       "with_features": float(losses.mean()), "converged": probe.converged}, gain))
    return found


def _fit(
    x: np.ndarray, target: Target, groups: np.ndarray, seed: int, **how: Any
) -> LogisticProbe:
    """Return a probe whose penalty is chosen by what it is judged by, its log loss."""
    return fit_probe(x, target.train, groups, multilabel=False, selected_by="log_loss", seed=seed,
                     **how)
