"""Which labels can be read out of the codes, on combinations that were never trained on?

A logistic probe per layer, pair and label is fitted on codes of training combinations and
scored on held-out ones (paper, Fig. 2B and 5F), beside the same probe on its controls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.parallel import Parallel, delayed

from latentcode.arguments import chosen
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.bootstrap import (
    LEVEL,
    ClassCounts,
    accuracy,
    class_f1,
    count_by_cluster,
    macro_f1,
    percentile_interval,
    resample,
)
from latentcode.probes.common.features import (
    FEATURES,
    Features,
    check_controls,
    check_pair_of_codes,
    origin,
    shuffle_labels,
)
from latentcode.probes.common.labels import Target, combination_clusters, label_names, make_target
from latentcode.probes.common.shared import shared_combinations
from latentcode.probes.decoding.logistic import (
    N_FOLDS,
    PENALTIES,
    SELECTION_INSTANCES,
    LogisticProbe,
    fit_probe,
)
from latentcode.probes.decoding.result import DecodingResult
from latentcode.progress import Progress, reported, watched
from latentcode.seeds import checked_seed

METRICS: dict[bool, dict[str, Callable[[ClassCounts], np.ndarray]]] = {
    False: {"accuracy": accuracy, "macro_f1": macro_f1},
    True: {"f1": macro_f1},
}
"""Metrics of single-label and of multi-label problems."""

_Place = tuple[int, str, str, str]
"""Layer, pair, label, features."""


@watched("fitting probes")
def decode_codes(
    train: LatentCodes,
    heldout: LatentCodes,
    labels: Sequence[str],
    *,
    layers: Sequence[int] | int | None = None,
    pairs: Sequence[str] | None = None,
    untrained: tuple[LatentCodes, LatentCodes] | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    n_shuffles: int = 3,
    n_bootstrap: int = 1000,
    seed: int = 0,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> DecodingResult:
    """What does argmax_c (W z + b)_c, z the standardised code, say about each label?

    train, heldout  codes of training and of held-out combinations, same layers and pairs
    labels    columns such as `term_1`, names that a pair resolves such as `rule`, or groups
              such as `terms` (which terms occur: one-vs-rest, macro F1); see `probes.common.labels`
    layers, pairs  which to probe; all by default
    untrained  (training, held-out) codes of the model with its initial weights
    controls  False leaves out the untrained model and the residual stream and marks the result;
              shuffled labels are always there
    allow_overlap  what training and held-out codes may have in common: `nothing`, `combinations`
              (as the splits train and test have), or `instances`, which scores a probe on what it
              was fitted on. The result says so
    n_shuffles  shuffles of the training labels; their mean score is reported, and their
              interval spans the shuffles as well as the held-out combinations
    n_bootstrap  replicates of the 95 % interval, which resamples the held-out combinations
    n_jobs    processes that fit probes side by side

    Every probe chooses its own regularisation inside its training codes (`fit_probe`). Classes
    that occur in the held-out codes alone count as errors and are reported in `n_unseen`.
    `chance` is the best score that any constant answer reaches on the held-out codes.
    In a group, such as `terms`, the yes and no of each class weigh the same in the fit; the
    best constant answer there is to give every class.

    Raises `UnknownNameError` for a label, layer or pair that does not exist, `ProbeError` for
    missing controls, a label with one class in training, fewer than two combinations, or codes
    that share more than they may.
    """
    seed = checked_seed(seed)
    labels = label_names(labels)
    check(len(labels) > 0, "labels is empty; expected at least one label to decode", ProbeError)
    for name, value, least in (("n_bootstrap", n_bootstrap, 100), ("n_shuffles", n_shuffles, 1)):
        check_count(name, value, least, ProbeError)
    check_pair_of_codes(train, heldout, "codes")
    shared = shared_combinations(train, heldout, allow_overlap)
    check_controls(train, heldout, untrained, controls)
    layers = chosen("layer", layers, train.layers)
    pairs = chosen("pair", pairs, [p.name for p in train.pairs])
    feature_sets = FEATURES if controls else ("code", "shuffled")
    read = {name: untrained if name == "untrained" and untrained else (train, heldout)
            for name in feature_sets}
    # Everything is looked up before anything is fitted: a bad label is told at once.
    problems: dict[Hashable, _Problem] = {}
    solved_by: dict[_Place, Hashable] = {}
    for label, pair, features in product(labels, pairs, feature_sets):
        found = _problems(read[features], features, label, pair, layers, n_shuffles)
        for layer, (key, problem) in zip(layers, found, strict=True):
            problems[key] = problem
            solved_by[layer, pair, label, features] = key
    solved = Parallel(n_jobs, return_as="generator")(
        delayed(_probe)(problem, n_bootstrap, seed) for problem in problems.values())
    outcomes = dict(zip(problems, reported(solved, len(problems), progress), strict=True))

    table: list[dict[str, Any]] = []
    per_class: list[dict[str, Any]] = []
    for label, pair, layer, features in product(labels, pairs, layers, feature_sets):
        place = {"layer": layer, "pair": pair, "label": label, "features": features}
        outcome = outcomes[solved_by[layer, pair, label, features]]
        table += [place | row for row in outcome.rows]
        per_class += [place | row for row in outcome.class_rows]
    return DecodingResult(pd.DataFrame(table), pd.DataFrame(per_class), {
        "controls": list(feature_sets[1:]), "n_shuffles": n_shuffles,
        "n_bootstrap": n_bootstrap, "level": LEVEL, "seed": seed, "penalties": list(PENALTIES),
        "allow_overlap": allow_overlap, "shared_combinations": shared,
        "n_folds": N_FOLDS, "selection_instances": SELECTION_INSTANCES,
        "train": origin(train), "heldout": origin(heldout),
        "scikit_learn": version("scikit-learn")})


@dataclass(frozen=True)
class _Problem:
    """One probe to fit and to score, on true labels or (n_shuffles > 0) on shuffled ones.

    `where` names it in errors.
    """

    where: str
    x: np.ndarray
    x_heldout: np.ndarray
    target: Target
    groups: np.ndarray
    heldout_groups: np.ndarray
    n_shuffles: int


@dataclass(frozen=True)
class _Outcome:
    """What one probe gave: a row per metric and a row per class, without their place."""

    rows: list[dict[str, Any]]
    class_rows: list[dict[str, Any]]


def _problems(
    codes: tuple[LatentCodes, LatentCodes], name: str, label: str, pair: str,
    layers: Sequence[int], n_shuffles: int,
) -> Iterator[tuple[Hashable, _Problem]]:
    """Yield the problem of each layer, after what tells it from others: equal ones are one."""
    target = make_target(*codes, label, pair)
    groups, heldout_groups = map(combination_clusters, codes)
    train, heldout = (Features(name, part) for part in codes)
    for layer in layers:
        yield (name, target.columns, layer, train.place(pair)), _Problem(
            f"{name} of layer {layer}, pair {pair!r}, label {label!r}",
            train.values(layer, pair), heldout.values(layer, pair), target, groups,
            heldout_groups, n_shuffles if name == "shuffled" else 0)


def _probe(problem: _Problem, n_bootstrap: int, seed: int) -> _Outcome:
    """Fit the probe of a problem, or one per shuffle, and score it."""
    for what, x in (("training", problem.x), ("held-out", problem.x_heldout)):
        check(bool(np.isfinite(x).all()), f"{problem.where}: the {what} values are not all finite",
              ProbeError)
    # Streams of their own, so that the number of shuffles does not move the intervals.
    for_shuffles, for_bootstrap = np.random.SeedSequence(seed).spawn(2)
    try:
        probes = _fitted(problem, for_shuffles, seed)
    except ProbeError as error:
        raise ProbeError(f"{problem.where}: {error}") from None
    return _scored(problem, probes, n_bootstrap, np.random.default_rng(for_bootstrap))


def _fitted(
    problem: _Problem, for_shuffles: np.random.SeedSequence, seed: int
) -> list[LogisticProbe]:
    """Return the probe of the true labels, or one for each time that they are shuffled."""
    target = problem.target
    fit = partial(fit_probe, problem.x, groups=problem.groups, multilabel=target.multilabel,
                  seed=seed)
    true = fit(y=target.train)
    if not problem.n_shuffles:
        return [true]
    # The same probe on other labels, so with the regularisation that the real ones chose.
    return [fit(y=shuffle_labels(target.train, problem.groups, np.random.default_rng(child)),
                penalties=[true.penalty]) for child in for_shuffles.spawn(problem.n_shuffles)]


def _scored(
    problem: _Problem, probes: Sequence[LogisticProbe], n_bootstrap: int,
    rng: np.random.Generator,
) -> _Outcome:
    """Return the mean scores of probes on the held-out codes, with their intervals."""
    target = problem.target
    counts = [count_by_cluster(target.heldout, probe.predict(problem.x_heldout),
                               problem.heldout_groups) for probe in probes]
    n_clusters = len(counts[0].support)
    weights = resample(n_clusters, n_bootstrap, rng)
    which = rng.integers(len(counts), size=n_bootstrap)

    def interval(metric: Callable[[ClassCounts], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        replicates = np.stack([metric(c.weighted(weights)) for c in counts])
        return percentile_interval(replicates[which, np.arange(n_bootstrap)], n_clusters)

    shared = {
        "n_train": len(problem.x), "n_heldout": len(problem.x_heldout),
        "n_train_combinations": len(np.unique(problem.groups)),
        "n_heldout_combinations": n_clusters,
        "n_classes": int(target.train.any(axis=0).sum()), "n_unseen": target.n_unseen,
        "C": float(np.median([p.C for p in probes])),
        "converged": all(p.converged for p in probes)}
    rows = []
    for name, metric in METRICS[target.multilabel].items():
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


def chance(heldout: np.ndarray, metric: str) -> float:
    """Return the best score that any constant answer reaches on held-out labels [N, class].

    With p_c the share of class c: accuracy max_c p_c; macro F1 max_c 2 p_c / (1 + p_c) divided
    by the number of classes that occur; multi-label F1 the mean over occurring classes of
    2 p_c / (1 + p_c), reached by always giving every class.
    """
    share = heldout.mean(axis=0)
    share = share[share > 0]
    f1 = 2.0 * share / (1.0 + share)
    return float({"accuracy": share.max(), "macro_f1": f1.max() / len(share),
                  "f1": f1.mean()}[metric])
