"""Probes of labels on features: fitted on training combinations, scored on held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.parallel import Parallel, delayed

from latentcode.errors import ProbeError, check
from latentcode.probes.common.bootstrap import (
    LEVEL,
    ClassCounts,
    accuracy,
    balanced_accuracy,
    class_f1,
    count_by_cluster,
    macro_f1,
    percentile_interval,
    resample,
)
from latentcode.probes.common.features import shuffle_labels
from latentcode.probes.common.labels import Target
from latentcode.probes.decoding.beyond import Known, gains
from latentcode.probes.decoding.logistic import (
    N_FOLDS,
    PENALTIES,
    SELECTION_INSTANCES,
    LogisticProbe,
    fit_probe,
)
from latentcode.probes.decoding.result import DecodingResult
from latentcode.progress import Progress, reported

Metric = Callable[[ClassCounts], np.ndarray]
SINGLE: Mapping[str, Metric] = {
    "accuracy": accuracy, "macro_f1": macro_f1, "balanced_accuracy": balanced_accuracy}
"""Metrics of labels of which an instance has a single class."""
GROUP: Mapping[str, Metric] = {"f1": macro_f1}
"""Metrics of groups, of which it has several."""
METRICS = ("accuracy", "macro_f1")
"""Those of `SINGLE` that are reported unless others are asked for."""


@dataclass(frozen=True)
class Reading:
    """Features of training and of held-out instances, in one layer and at one pair.

    name    what tables call them
    train, heldout  [N, d]; d is 0 for what was reduced and does not vary
    same    what tells them from others: a probe is fitted once on those that have it in common
    shuffled  what they are called with labels of other instances; None: these are not asked for
    size    how many numbers they have, before any reduction
    width   to which they were reduced at most; None for all dimensions
    """

    name: str
    layer: int | str
    pair: str
    train: np.ndarray
    heldout: np.ndarray
    same: Hashable
    shuffled: str | None
    size: int
    width: int | None = None


@dataclass(frozen=True)
class Asked:
    """What is asked of all features, and how.

    targets  (label, pair) -> its classes
    groups, heldout_groups  the combination of each instance, int [N]
    known    (label, pair) -> what may be known beside the features
    metrics  of `SINGLE`
    """

    targets: Mapping[tuple[str, str], Target]
    groups: np.ndarray
    heldout_groups: np.ndarray
    metrics: Sequence[str]
    n_shuffles: int
    n_bootstrap: int
    seed: int
    known: Mapping[tuple[str, str], Sequence[Known]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """How probes are fitted, and where intervals come from."""
        return {"metrics": list(self.metrics), "n_shuffles": self.n_shuffles,
                "n_bootstrap": self.n_bootstrap, "level": LEVEL, "seed": self.seed,
                "penalties": list(PENALTIES), "n_folds": N_FOLDS,
                "selection_instances": SELECTION_INSTANCES,
                "scikit_learn": version("scikit-learn")}


@dataclass(frozen=True)
class _Problem:
    """A label asked of a reading; `where` names both in errors."""

    where: str
    reading: Reading
    target: Target
    asked: Asked

    def streams(self) -> list[np.random.SeedSequence]:
        """Of shuffles, and of the bootstrap, which the number of shuffles does not move."""
        return np.random.SeedSequence(self.asked.seed).spawn(2)


@dataclass(frozen=True)
class _Outcome:
    """What one probe gave: a row per metric and a row per class, without their place."""

    rows: list[dict[str, Any]]
    class_rows: list[dict[str, Any]]


def decoded(
    readings: Sequence[Reading], asked: Asked, names: Sequence[str], *, n_jobs: int,
    progress: Progress | None,
) -> dict[str, pd.DataFrame]:
    """Return the tables of `DecodingResult`: of each label, pair, layer, and features.

    names  of the features, in the order of the rows
    """
    jobs: dict[Hashable, Any] = {}
    entries: list[tuple[tuple[str, str], Reading, list[Hashable]]] = []
    for (label, pair), target in asked.targets.items():
        beside = asked.known.get((label, pair), ())
        for reading in readings:
            if reading.pair != pair:
                continue
            problem = _Problem(f"{reading.name} of layer {reading.layer}, pair {pair!r}, label "
                               f"{label!r}", reading, target, asked)
            keys: list[Hashable] = [(reading.same, target.columns),
                                    *((reading.same, label, known.given) for known in beside)]
            jobs.setdefault(keys[0], delayed(_probed)(problem))
            for key, known in zip(keys[1:], beside, strict=True):
                jobs.setdefault(key, delayed(_gained)(problem, known))
            entries.append(((label, pair), reading, keys))
    done = Parallel(n_jobs, return_as="generator")(jobs.values())
    found = dict(zip(jobs, reported(done, len(jobs), progress), strict=True))
    layers = list(dict.fromkeys(reading.layer for reading in readings))
    order = list(asked.targets)
    ranked: dict[str, list[tuple[tuple[int, ...], dict[str, Any]]]] = {
        name: [] for name in DecodingResult.COLUMNS}
    for about, reading, keys in entries:
        for i, name in enumerate(filter(None, (reading.name, reading.shuffled))):
            rank = order.index(about), layers.index(reading.layer), names.index(name)
            place = {"layer": reading.layer, "pair": reading.pair, "label": about[0],
                     "features": name, "width": reading.width}
            dimensions = {"size": reading.size, "dimensions": reading.train.shape[1]}
            outcome, *gained = (found[key][i] for key in keys)
            ranked["table"] += [(rank, place | dimensions | row) for row in outcome.rows]
            ranked["per_class"] += [(rank, place | row) for row in outcome.class_rows]
            ranked["given"] += [(rank, place | row) for row in gained]
    whole = all(reading.width is None for reading in readings)
    return {name: pd.DataFrame([row for _, row in sorted(rows, key=lambda of: of[0])],
                               columns=list(DecodingResult.COLUMNS[name]))
            .astype({"width": float if whole else int}) for name, rows in ranked.items()}


def _probed(problem: _Problem) -> list[_Outcome]:
    """Fit the probe of a problem, and those of shuffled labels if asked for, and score them."""
    reading = problem.reading
    for what, x in (("training", reading.train), ("held-out", reading.heldout)):
        check(bool(np.isfinite(x).all()), f"{problem.where}: the {what} values are not all finite",
              ProbeError)
    if not (reading.train.shape[1] and problem.target.varies):
        return [_unread(problem)] * (1 if reading.shuffled is None else 2)
    try:
        return [_scored(problem, probes) for probes in _fitted(problem)]
    except ProbeError as error:
        raise ProbeError(f"{problem.where}: {error}") from None


def _fitted(problem: _Problem) -> list[list[LogisticProbe]]:
    """Return the probe of the true labels, and one for each time that they are shuffled."""
    target, asked = problem.target, problem.asked
    fit = partial(fit_probe, problem.reading.train, groups=asked.groups,
                  multilabel=target.multilabel, seed=asked.seed)
    true = fit(y=target.train)
    if problem.reading.shuffled is None:
        return [[true]]
    # The same probe on other labels, so with the regularisation that the real ones chose.
    return [[true], [fit(y=shuffle_labels(target.train, asked.groups, np.random.default_rng(child)),
                         penalties=[true.penalty])
                     for child in problem.streams()[0].spawn(asked.n_shuffles)]]


def _scored(problem: _Problem, probes: Sequence[LogisticProbe]) -> _Outcome:
    """Return the mean scores of probes on the held-out codes, with their intervals."""
    target, asked = problem.target, problem.asked
    n_bootstrap = asked.n_bootstrap
    rng = np.random.default_rng(problem.streams()[1])
    counts = [count_by_cluster(target.heldout, probe.predict(problem.reading.heldout),
                               asked.heldout_groups) for probe in probes]
    n_clusters = len(counts[0].support)
    weights = resample(n_clusters, n_bootstrap, rng)
    which = rng.integers(len(counts), size=n_bootstrap)

    def interval(metric: Metric) -> tuple[np.ndarray, np.ndarray]:
        replicates = np.stack([metric(c.weighted(weights)) for c in counts])
        return percentile_interval(replicates[which, np.arange(n_bootstrap)], n_clusters)

    shared = _counted(problem) | {"C": float(np.median([p.C for p in probes])),
                                  "converged": all(p.converged for p in probes)}
    rows = []
    for name, metric in _metrics(problem).items():
        low, high = interval(metric)
        rows.append({"metric": name,
                     "value": float(np.mean([metric(c.total()) for c in counts])),
                     "low": float(low), "high": float(high),
                     "chance": chance(target.heldout, name), **shared})
    totals = [c.total() for c in counts]
    f1 = np.mean([class_f1(c) for c in totals], axis=0)
    low, high = interval(class_f1)
    class_rows = [
        {"class": str(name), "f1": f1[i], "low": low[i], "high": high[i],
         "n_heldout": int(totals[0].support[i]), "n_train": int(target.train[:, i].sum())}
        for i, name in enumerate(target.classes) if totals[0].support[i] > 0]
    return _Outcome(rows, class_rows)


def _unread(problem: _Problem) -> _Outcome:
    """Return rows without a score."""
    nothing = dict.fromkeys(("value", "low", "high", "C"), np.nan)
    return _Outcome([{"metric": name, "chance": chance(problem.target.heldout, name), **nothing,
                      **_counted(problem), "converged": True} for name in _metrics(problem)], [])


def _metrics(problem: _Problem) -> Mapping[str, Metric]:
    return GROUP if problem.target.multilabel else {
        name: SINGLE[name] for name in problem.asked.metrics}


def _counted(problem: _Problem) -> dict[str, int]:
    target, asked = problem.target, problem.asked
    return {"n_train": len(asked.groups), "n_heldout": len(asked.heldout_groups),
            "n_train_combinations": len(np.unique(asked.groups)),
            "n_heldout_combinations": int(asked.heldout_groups.max()) + 1,
            "n_classes": int(target.train.any(axis=0).sum()), "n_unseen": target.n_unseen}


def _gained(problem: _Problem, known: Known) -> list[dict[str, Any]]:
    """Return what features add to what is known, and what another instance's features add."""
    asked, reading = problem.asked, problem.reading
    weights = resample(int(asked.heldout_groups.max()) + 1, asked.n_bootstrap,
                       np.random.default_rng(problem.streams()[1]))
    return gains(known, reading.train, reading.heldout, problem.target, asked.groups,
                 asked.heldout_groups, weights, shuffled=reading.shuffled is not None,
                 seed=asked.seed)


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
