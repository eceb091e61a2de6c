"""Reduced features, and every question that is asked of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latentcode.probes.common.bootstrap import percentile_interval
from latentcode.probes.common.features import shuffle_labels
from latentcode.probes.common.labels import Target
from latentcode.probes.decoding.logistic import LogisticProbe, fit_probe
from latentcode.probes.rows.given import Known, log_posteriors
from latentcode.probes.rows.labels import conditions, is_operation
from latentcode.probes.rows.result import FLAT, ONE_CLASS, READ
from latentcode.probes.rows.scores import cluster_means, nulls, scored

PENALTIES: tuple[float, ...] = (1.0, 0.1, 1e-2, 1e-3)
"""Penalties per instance that are tried (`fit_probe`): hundreds of probes are fitted, so fewer than
where one code is decoded."""
N_FOLDS = 3
"""Folds of the choice among them."""
Tables = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@dataclass(frozen=True)
class Reading:
    """Features of one model, reduced.

    place   layer, features, model, size and dimensions: the columns of both tables
    widths  those that it answers for: narrow features are the same at several
    train, heldout  float32 [N, dimensions]
    """

    place: Mapping[str, Any]
    widths: Sequence[int]
    train: np.ndarray
    heldout: np.ndarray


@dataclass(frozen=True)
class Questions:
    """What is asked of all features.

    targets  label -> its classes; known: what may be known beside the features
    groups, clusters  the combination of each training and held-out instance, int [N]
    weights  float64 [replicate, held-out combination], the bootstrap's
    """

    targets: Mapping[str, Target]
    known: Sequence[Known]
    groups: np.ndarray
    clusters: np.ndarray
    weights: np.ndarray

    def fit(self, x: np.ndarray, target: Target, y: np.ndarray, **how: Any) -> LogisticProbe:
        """Return the probe of labels y [N, class], its penalty chosen by what it is judged by."""
        return fit_probe(x, y, self.groups, multilabel=target.multilabel, n_folds=N_FOLDS,
                         selected_by="hits" if target.multilabel else "log_loss",
                         **{"penalties": PENALTIES} | how)


def known_beside(
    questions: Questions, frames: Sequence[pd.DataFrame], seed: int
) -> list[Known]:
    """Return what may be known beside features, for each label of the operation.

    frames  what training, held-out and counted instances are asked (`asked`)
    """
    train, heldout, counted = frames
    found = []
    for label, target in questions.targets.items():
        if (target.multilabel or not target.varies or label not in counted
                or not is_operation(label)):
            continue
        for given, columns in conditions(counted).items():
            x, x_heldout = log_posteriors(label, columns, target, counted, (train, heldout))
            probe = questions.fit(x, target, target.train, seed=seed)
            found.append(Known(label, given, x, x_heldout,
                               probe.log_losses(x_heldout, target.heldout)))
    return found


def answers(reading: Reading, questions: Questions, seed: int) -> Tables:
    """Return the rows of both tables that a reading fills."""
    table, given = [], []
    for label, target in questions.targets.items():
        table += _of_label(reading, questions, label, target, seed)
    for known in questions.known:
        given += _of_known(reading, questions, known, questions.targets[known.label], seed)
    return _at_widths(table, reading), _at_widths(given, reading)


def _at_widths(rows: Sequence[Mapping[str, Any]], reading: Reading) -> list[dict[str, Any]]:
    return [{**reading.place, "width": width, **row} for width in reading.widths for row in rows]


def _of_label(
    reading: Reading, questions: Questions, label: str, target: Target, seed: int
) -> list[dict[str, Any]]:
    """Return the rows of a label, and those of shuffled labels beside a trained model's."""
    constants = nulls(target)
    about = {"label": label, "n_classes": int(target.train.any(axis=0).sum()),
             "n_unseen": target.n_unseen, "n_heldout_combinations": len(questions.weights[0])}
    trained = reading.place["model"] == "trained"
    models = (reading.place["model"], "shuffled") if trained else (reading.place["model"],)
    if not (target.varies and reading.train.shape[1]):
        return [{**about, **_nothing("value"), "model": model, "metric": metric, "penalty": np.nan,
                 "prior": prior, "best_constant": best,
                 "status": FLAT if target.varies else ONE_CLASS}
                for model in models for metric, (prior, best) in constants.items()]
    probe = questions.fit(reading.train, target, target.train, seed=seed)
    probes = {reading.place["model"]: probe}
    if trained:
        # With the penalty that the real labels chose.
        other = shuffle_labels(target.train, questions.groups, np.random.default_rng([seed, 2]))
        probes["shuffled"] = questions.fit(reading.train, target, other,
                                           penalties=[probe.penalty], seed=seed)
    return [{**about, **row, "model": model, "penalty": probe.penalty,
             "converged": fitted.converged, "prior": constants[row["metric"]][0],
             "best_constant": constants[row["metric"]][1], "status": READ}
            for model, fitted in probes.items()
            for row in scored(fitted, reading.heldout, target, questions.clusters,
                              questions.weights)]


def _of_known(
    reading: Reading, questions: Questions, known: Known, target: Target, seed: int
) -> list[dict[str, Any]]:
    """Return what features add to what is known, and what another instance's features add."""
    about = {"label": known.label, "given": known.given, "known": float(known.losses.mean())}
    trained = reading.place["model"] == "trained"
    feature_sets: dict[str, tuple[np.ndarray, ...]] = {
        reading.place["model"]: (reading.train, reading.heldout)}
    if trained:
        rng = np.random.default_rng([seed, 3])
        feature_sets["shuffled"] = tuple(x[rng.permutation(len(x))]
                                         for x in (reading.train, reading.heldout))
    if not reading.train.shape[1]:
        return [{**about, **_nothing("gain"), "with_features": np.nan, "model": model,
                 "status": FLAT} for model in feature_sets]
    rows = []
    how: dict[str, Any] = {}
    for model, (features, features_heldout) in feature_sets.items():
        x = np.concatenate([known.train, features], axis=1)
        x_heldout = np.concatenate([known.heldout, features_heldout], axis=1)
        probe = questions.fit(x, target, target.train, seed=seed, **how)
        how = {"penalties": [probe.penalty]}  # of the features themselves, which come first
        losses = probe.log_losses(x_heldout, target.heldout)
        low, high = percentile_interval(*cluster_means(
            known.losses - losses, questions.clusters, questions.weights))
        rows.append({**about, "gain": float((known.losses - losses).mean()), "low": float(low),
                     "high": float(high), "with_features": float(losses.mean()), "model": model,
                     "converged": probe.converged, "status": READ})
    return rows


def _nothing(value: str) -> dict[str, Any]:
    return {value: np.nan, "low": np.nan, "high": np.nan, "converged": True}
