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
from latentcode.probes.common.logistic import LEAST_PROBABILITY, LogisticProbe, fit_probe
from latentcode.probes.common.shuffling import rows_of_others
from latentcode.subjects import Subject

N_BINS = 8
"""Bins of equal share of the training instances that a measurement, such as the answer of fuzzy
logic, is put into: as many as SRAVEN has symbols."""
ANSWER, OPERAND = "answer", "operand"
"""The column of the answer, and what those of operands begin with (`Task.row_labels`)."""
TABLE_INSTANCES = 65_536
"""Instances of the training split that the tables are counted on; no model reads them."""


def operation_labels(
    asked: Subject, pair: str, labels: Sequence[pd.DataFrame], counted: Sequence[pd.DataFrame] = ()
) -> list[pd.DataFrame]:
    """Return operation, operands and answer of the problems at a pair, beside their other labels.

    labels   of training problems, then of others
    counted  of problems by which it is counted what goes with what

    Measurements are bins 1 .. N_BINS, between the quantiles of the training problems.
    """
    frames = [asked.row_labels(frame, pair) for frame in (*labels, *counted)]
    for column in frames[0].columns[frames[0].dtypes.map(lambda dtype: dtype.kind == "f")]:
        edges = np.quantile(frames[0][column], np.linspace(0, 1, N_BINS + 1)[1:-1])
        for frame in frames:
            frame[column] = 1 + np.searchsorted(edges, frame[column].to_numpy())
    return [frame if further is None else pd.concat(
        [frame, further[[name for name in further if name not in frame]]], axis=1)
        for frame, further in zip(frames, [*labels, *[None] * len(counted)], strict=True)]


def conditions(frame: pd.DataFrame) -> Mapping[str, tuple[str, ...]]:
    """Return what may be known beside features: the answer, or the answer and all operands."""
    operands = tuple(str(name) for name in frame if str(name).startswith(OPERAND))
    if ANSWER not in frame:
        return {}
    alone = {ANSWER: (ANSWER,)}
    return alone | {"answer and operands": (ANSWER, *operands)} if operands else alone


def is_operation(name: str) -> bool:
    """Whether a column of `Task.row_labels` says what is done, not to what or what comes out."""
    return name != ANSWER and not name.startswith(OPERAND)


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
    `shuffled`, also what those of another combination's instances add, with the same penalty:
    reading nothing loses a little.

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
        read.append((train[rows_of_others(groups, rng)],
                     heldout[rows_of_others(clusters, rng)]))
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
