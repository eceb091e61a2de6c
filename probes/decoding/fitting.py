"""Probes of labels on features: fitted on training combinations, scored on held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.parallel import Parallel, delayed

from latentcode.codes.aggregates import MEAN_RESIDUAL
from latentcode.errors import ProbeError, check
from latentcode.probes.common.bootstrap import (
    LEVEL,
    ClassCounts,
    accuracy,
    balanced_accuracy,
    class_f1,
    count_by_cluster,
    macro_f1,
    resample,
)
from latentcode.probes.common.contrasts import Contrasts, Resampled
from latentcode.probes.common.features import varies
from latentcode.probes.common.labels import Target
from latentcode.probes.common.results import BAG
from latentcode.probes.common.shuffling import has_null, shuffled_labels
from latentcode.probes.decoding.beyond import Known, gains
from latentcode.probes.decoding.logistic import (
    N_FOLDS,
    PENALTIES,
    SELECTION_INSTANCES,
    LogisticProbe,
    fit_probe,
)
from latentcode.probes.decoding.result import DecodingResult, named
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
    train, heldout  [N, d], held-out instances of all splits in turn; d is 0 for what was reduced
            and does not vary
    same    what tells them from others: a probe is fitted once on those that have it in common
    shuffled  what they are called with labels of other instances; None: these are not asked for
    size    how many numbers they have, before any reduction
    width   to which they were reduced at most; None for all dimensions
    common_scale  as in `fit_probe`
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
    common_scale: bool = False


@dataclass(frozen=True)
class Asked:
    """What is asked of all features, and how.

    targets  (label, pair) -> its classes
    groups   the combination of each training instance, int [N]
    heldout  those of the held-out instances, one array per split that probes are scored on
    known    (label, pair) -> what may be known beside the features
    metrics  of `SINGLE`
    """

    targets: Mapping[tuple[str, str], Target]
    groups: np.ndarray
    heldout: Sequence[np.ndarray]
    metrics: Sequence[str]
    n_shuffles: int
    n_bootstrap: int
    seed: int
    known: Mapping[tuple[str, str], Sequence[Known]] = field(default_factory=dict)

    def splits(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield, of each split, which held-out instances are its own, and their combinations."""
        first = 0
        for groups in self.heldout:
            yield slice(first, first + len(groups)), groups
            first += len(groups)

    @property
    def settings(self) -> dict[str, Any]:
        """How probes are fitted, and where intervals come from."""
        no_null = [label for (label, _), target in self.targets.items()
                   if not has_null(target.train, self.groups)]
        return {"metrics": list(self.metrics), "no_null": list(dict.fromkeys(no_null)),
                "n_shuffles": self.n_shuffles, "n_bootstrap": self.n_bootstrap,
                "level": LEVEL, "seed": self.seed, "penalties": list(PENALTIES), "n_folds": N_FOLDS,
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
    """What one probe gave on one split: a row per metric and a row per class, without their place.

    scores    metric -> the score, and what it is on resampled combinations
    constant  metric -> the same of the best constant answer
    """

    rows: list[dict[str, Any]]
    class_rows: list[dict[str, Any]]
    scores: Mapping[str, Resampled] = field(default_factory=dict)
    constant: Mapping[str, Resampled] = field(default_factory=dict)


Place = tuple[tuple[str, str], int | str, int | None, str]
"""((label, pair), layer, width, features)."""


def decoded(
    readings: Sequence[Reading], asked: Asked, names: Sequence[str], *, n_jobs: int,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Return the tables of `DecodingResult`, one set per split: of each label, pair, layer, and
    features. A probe is fitted once, whatever it is scored on and compared with.

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
    rated = [(about, reading, names.index(name), [found[key][i] for key in keys])
             for about, reading, keys in entries
             for i, name in enumerate(filter(None, (reading.name, reading.shuffled)))]
    rated.sort(key=lambda one: (order.index(one[0]), layers.index(one[1].layer), one[2]))
    return [_tables(split, rated, readings, names) for split in range(len(asked.heldout))]


def _tables(
    split: int, rated: Sequence[tuple[tuple[str, str], Reading, int, list[Any]]],
    readings: Sequence[Reading], names: Sequence[str],
) -> dict[str, Any]:
    """Return the tables of one split, from what each reading gave."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in DecodingResult.COLUMNS}
    outcomes: dict[Place, _Outcome] = {}
    for about, reading, i, (of_splits, *gained) in rated:
        place = {"layer": reading.layer, "pair": reading.pair, "label": about[0],
                 "features": names[i], "width": reading.width}
        dimensions = {"size": reading.size, "dimensions": reading.train.shape[1]}
        outcome = of_splits[split]
        outcomes[about, reading.layer, reading.width, names[i]] = replace(
            outcome, scores={**outcome.scores, **{
                f"gain given {row['given']}": gain for row, gain in gained if gain is not None}})
        rows["table"] += [place | dimensions | row for row in outcome.rows]
        rows["per_class"] += [place | row for row in outcome.class_rows]
        rows["given"] += [place | row for row, _ in gained]
    rows["contrasts"] = list(_contrasts(outcomes, readings))
    whole = all(reading.width is None for reading in readings)
    tables = {name: pd.DataFrame(found, columns=list(DecodingResult.COLUMNS[name]))
              .astype({"width": float if whole else int}) for name, found in rows.items()}
    return tables | {"contrasts": Contrasts(tables["contrasts"])}


def _contrasts(
    outcomes: Mapping[Place, _Outcome], readings: Sequence[Reading]
) -> Iterator[dict[str, Any]]:
    """Yield the trained features less their controls, of the same layer, pair, label and width:
    with shuffled labels, of the untrained model, the residual stream, the bag of tokens of whole
    texts, the best constant answer;
    and less the same features of the first layer in which they vary."""
    of = {(reading.pair, reading.layer, reading.width, reading.name): reading
          for reading in readings if reading.shuffled is not None}
    first: dict[tuple[str, int | None, str], int | str] = {}
    # Layers may have been asked in any order; of all together there is one.
    for (pair, layer, width, name), reading in sorted(
            of.items(), key=lambda one: one[0][1] if isinstance(one[0][1], int) else 0):
        if (pair, width, name) not in first and reading.heldout.size and varies(reading.heldout):
            first[pair, width, name] = layer
    for (about, layer, width, name), outcome in outcomes.items():
        if (about[1], layer, width, name) not in of or not outcome.scores:
            continue
        shuffled = of[about[1], layer, width, name].shuffled
        others = {other: outcomes[about, layer, width, other].scores
                  for other in (shuffled, named(name, "untrained"), "residual", MEAN_RESIDUAL, BAG)
                  if other and other != name and (about, layer, width, other) in outcomes}
        others["chance"] = outcome.constant
        reference = first.get((about[1], width, name), layer)
        if reference != layer:
            others[f"layer {reference}"] = outcomes[about, reference, width, name].scores
        for metric, score in outcome.scores.items():
            yield from ({"layer": layer, "pair": about[1], "label": about[0], "width": width,
                         "features": name, "quantity": metric, "against": other,
                         **(score - scores[metric]).row()}
                        for other, scores in others.items() if metric in scores)


def _probed(problem: _Problem) -> list[list[_Outcome]]:
    """Fit the probe of a problem, and those of shuffled labels if asked for, and score them."""
    reading = problem.reading
    for what, x in (("training", reading.train), ("held-out", reading.heldout)):
        check(bool(np.isfinite(x).all()), f"{problem.where}: the {what} values are not all finite",
              ProbeError)
    if not (reading.train.shape[1] and problem.target.varies):
        return [_unread(problem)] * (1 if reading.shuffled is None else 2)
    try:
        true, shuffled = _fitted(problem)
        found = [_scored(problem, [true], lambda scores, rng: scores[0])]
        if reading.shuffled is not None:
            found.append(_scored(problem, shuffled, Resampled.of_shuffles) if shuffled
                         else _unread(problem))
        return found
    except ProbeError as error:
        raise ProbeError(f"{problem.where}: {error}") from None


def _fitted(problem: _Problem) -> tuple[LogisticProbe, list[LogisticProbe]]:
    """Return the probe of the true labels, and one for each time that they are shuffled."""
    target, asked = problem.target, problem.asked
    fit = partial(fit_probe, problem.reading.train, groups=asked.groups,
                  multilabel=target.multilabel, seed=asked.seed,
                  common_scale=problem.reading.common_scale)
    true = fit(y=target.train)
    if problem.reading.shuffled is None:
        return true, []
    # The same probe on other labels, so with the regularisation that the real ones chose.
    rng = np.random.default_rng(problem.streams()[0])
    return true, [fit(y=shuffled, penalties=[true.penalty]) for shuffled in shuffled_labels(
        target.train, asked.groups, rng, asked.n_shuffles)]


def _scored(
    problem: _Problem, probes: Sequence[LogisticProbe], together: Callable[..., Resampled]
) -> list[_Outcome]:
    """Return the scores of probes on each split, taken `together`, with their intervals."""
    answers = [probe.predict(problem.reading.heldout) for probe in probes]
    fitted = {"C": float(np.median([p.C for p in probes])),
              "converged": all(p.converged for p in probes)}
    return [_on_split(problem, rows, groups, [answer[rows] for answer in answers], fitted, together)
            for rows, groups in problem.asked.splits()]


def _on_split(
    problem: _Problem, rows: slice, groups: np.ndarray, answers: Sequence[np.ndarray],
    fitted: Mapping[str, Any], together: Callable[..., Resampled],
) -> _Outcome:
    """Return the scores of some probes' answers, bool [N, class] each, on one split."""
    target = replace(problem.target, heldout=problem.target.heldout[rows])
    n_bootstrap = problem.asked.n_bootstrap
    rng = np.random.default_rng(problem.streams()[1])
    counts = [count_by_cluster(target.heldout, answer, groups) for answer in answers]
    best = count_by_cluster(target.heldout, _constant(target), groups)
    n, n_clusters = len(groups), len(counts[0].support)
    weights = resample(n_clusters, n_bootstrap, rng)

    def scored(metric: Metric) -> Resampled:
        return together([Resampled(metric(c.total()), metric(c.weighted(weights)), n, n_clusters)
                         for c in counts], rng)

    shared = _counted(problem, target, groups) | dict(fitted)
    scores, constant, of_metrics = {}, {}, []
    for name, metric in _metrics(problem).items():
        level = chance(target.heldout, name)
        scores[name] = score = scored(metric)
        constant[name] = Resampled(level, metric(best.weighted(weights)), n, n_clusters)
        low, high = score.interval()
        of_metrics.append({"metric": name, "value": float(score.value), "low": float(low),
                           "high": float(high), "chance": level, **shared})
    f1 = scored(class_f1)
    low, high = f1.interval()
    support = target.heldout.sum(axis=0)
    of_classes = [
        {"class": str(name), "f1": f1.value[i], "low": low[i], "high": high[i],
         "n_heldout": int(support[i]), "n_train": int(target.train[:, i].sum())}
        for i, name in enumerate(target.classes) if support[i] > 0]
    return _Outcome(of_metrics, of_classes, scores, constant)


def _constant(target: Target) -> np.ndarray:
    """Return the best constant answer, bool [N, class]: all of a group, else the commonest class.
    """
    if target.multilabel:
        return np.ones_like(target.heldout)
    answer = np.zeros_like(target.heldout)
    answer[:, target.heldout.sum(axis=0).argmax()] = True
    return answer


def _unread(problem: _Problem) -> list[_Outcome]:
    """Return rows without a score."""
    nothing = dict.fromkeys(("value", "low", "high", "C"), np.nan)
    found = []
    for rows, groups in problem.asked.splits():
        target = replace(problem.target, heldout=problem.target.heldout[rows])
        found.append(_Outcome(
            [{"metric": name, "chance": chance(target.heldout, name), **nothing,
              **_counted(problem, target, groups), "converged": True}
             for name in _metrics(problem)], []))
    return found


def _metrics(problem: _Problem) -> Mapping[str, Metric]:
    return GROUP if problem.target.multilabel else {
        name: SINGLE[name] for name in problem.asked.metrics}


def _counted(problem: _Problem, target: Target, heldout: np.ndarray) -> dict[str, int]:
    groups = problem.asked.groups
    return {"n_train": len(groups), "n_heldout": len(heldout),
            "n_train_combinations": len(np.unique(groups)),
            "n_heldout_combinations": int(heldout.max()) + 1,
            "n_classes": int(target.train.any(axis=0).sum()), "n_unseen": target.n_unseen}


def _gained(problem: _Problem, known: Known) -> list[tuple[dict[str, Any], Resampled | None]]:
    """Return what features add to what is known, and what another instance's features add."""
    asked, reading = problem.asked, problem.reading
    groups, = asked.heldout
    weights = resample(int(groups.max()) + 1, asked.n_bootstrap,
                       np.random.default_rng(problem.streams()[1]))
    return gains(known, reading.train, reading.heldout, problem.target, asked.groups, groups,
                 weights, shuffled=reading.shuffled is not None, seed=asked.seed)


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
