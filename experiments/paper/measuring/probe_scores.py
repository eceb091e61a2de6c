"""How much better are labels decoded from codes than from their controls? (Fig. 2B and 5F)

`decode` reports every score with its interval; what claims are judged by are differences, over the
same held-out instances, and these are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.experiments.evidence.claim import Claim
from latentcode.experiments.paper.measuring.over_runs import controls_of, per_kind
from latentcode.experiments.paper.reproduction import about
from latentcode.probes.common.bootstrap import (
    ClassCounts,
    balanced_accuracy,
    class_f1,
    count_by_cluster,
    macro_f1,
    percentile_interval,
    resample,
)
from latentcode.probes.common.features import Features, shuffle_labels, varies
from latentcode.probes.common.labels import combination_clusters, indicated, label_columns
from latentcode.probes.common.results import where
from latentcode.probes.decoding.fitting import chance
from latentcode.probes.decoding.logistic import LogisticProbe, fit_probe
from latentcode.runs import Run
from latentcode.subjects import subject
from latentcode.tasks import make_task

SPLITS = ("test", "ood")
"""Where probes are scored: fresh instances of the functions or rules of training, then held-out
combinations. Layers are chosen on the first."""
ALL = "(all)"
"""What stands for a class where a score is of all of them."""
N_SHUFFLES, N_BOOTSTRAP = 3, 1_000
CONTROLS: Mapping[str, str] = {
    "shuffled labels": "shuffled", "the code of the untrained model": "untrained"}
"""What the claims call a control -> features."""


Found = tuple[str, Run, pd.DataFrame]
"""Member, run, and what `probe_scores` says of it."""


@dataclass(frozen=True)
class _Scores:
    """A probe, or one for each shuffle of its labels, on the instances of one split.

    counts   of each probe, [cluster, class]
    weights  how often a replicate draws each combination, [replicate, cluster]; the same for all
             probes that are compared
    """

    metric: Callable[[ClassCounts], np.ndarray]
    counts: tuple[ClassCounts, ...]
    weights: np.ndarray

    @cached_property
    def value(self) -> float:
        return float(np.mean([self.metric(c.total()) for c in self.counts]))

    @cached_property
    def replicates(self) -> np.ndarray:
        """[replicate], which take the shuffles in turn, so that intervals span them, too."""
        found = np.stack([self.metric(c.weighted(self.weights)) for c in self.counts])
        turn = np.arange(found.shape[1])
        return np.asarray(found[turn % len(found), turn])

    def row(self, other: _Scores | None = None) -> dict[str, Any]:
        """Return the score with its interval, or its difference from another's."""
        replicates = self.replicates - (0.0 if other is None else other.replicates)
        low, high = percentile_interval(replicates, self.weights.shape[1])
        return {"value": self.value - (0.0 if other is None else other.value),
                "low": float(low), "high": float(high)}

    def by_class(self) -> np.ndarray:
        """Return F1 per class, NaN where a class does not occur."""
        return np.asarray(np.mean([class_f1(c.total()) for c in self.counts], axis=0))


def probe_scores(
    run: Run, *, label: str, inputs: str | None = None, n_train: int = 4_096, n: int = 4_096,
    seed: int = 0, device: str = "cpu",
) -> pd.DataFrame:
    """Return what logistic probes of a label score on the paper's pair, a row per number.

    inputs   of the task, `fixed_context` or `fixed_query`; default: as the task is probed
    n_train, n  instances that probes are fitted on, and those of each split that they are scored on

    split    `test` or `ood`
    layer, features   what is read: `code`, `residual`, `untrained` or `shuffled`
    varies   whether that differs between instances at all
    metric   `f1`, the mean over classes, of a group of labels, else `balanced_accuracy`; `f1` of
             single classes
    class    `ALL`, or the class
    against  other features, or `layer 1`, whose score is subtracted; None: nothing
    value, low, high   with the 95 % interval over combinations, of the difference where there is
             one; single classes have none
    chance   the best score that any constant answer reaches
    """
    task = make_task(run.config.task).probe_config
    task = task if inputs is None else replace(task, inputs=inputs)
    of = subject(run, task, device=device)
    parts = {split: (of.codes(split, n=size, residuals=True, seed=seed),
                     of.codes(split, n=size, untrained=True, seed=seed))
             for split, size in (("train", n_train), *((split, n) for split in SPLITS))}
    codes = parts["train"][0]
    pair, = (pair.name for pair in codes.pairs)
    columns, multilabel = label_columns(codes, label, pair)
    heldout = pd.concat([parts[split][0].labels for split in SPLITS], ignore_index=True)
    target = indicated(label, columns, multilabel, codes.labels, heldout)
    truth = {split: target.heldout[n * i:n * (i + 1)] for i, split in enumerate(SPLITS)}
    groups = combination_clusters(codes)
    clusters = {split: combination_clusters(parts[split][0]) for split in SPLITS}
    weights = {split: resample(int(clusters[split].max()) + 1, N_BOOTSTRAP,
                               np.random.default_rng(seed)) for split in SPLITS}
    score = "f1" if multilabel else "balanced_accuracy"
    metric = macro_f1 if multilabel else balanced_accuracy

    def points(split: str, features: str, layer: int) -> np.ndarray:
        return Features(features, parts[split][features == "untrained"]).points(layer, pair)

    found: dict[tuple[str, int, str], _Scores] = {}
    for layer in codes.layers:
        for features in ("code", "residual", "untrained"):
            x = points("train", features, layer)
            probe = fit_probe(x, target.train, groups, multilabel=multilabel, seed=seed)
            probes: dict[str, tuple[LogisticProbe, ...]] = {features: (probe,)}
            if features == "code":
                probes["shuffled"] = _of_shuffled(x, target.train, groups, multilabel, probe, seed)
            for name, fitted in probes.items():
                for split in SPLITS:
                    z = points(split, features, layer)
                    counts = tuple(count_by_cluster(truth[split], one.predict(z), clusters[split])
                                   for one in fitted)
                    found[split, layer, name] = _Scores(metric, counts, weights[split])

    def rows() -> Iterable[dict[str, Any]]:
        for (split, layer, features), scores in found.items():
            place = {"split": split, "layer": layer, "features": features,
                     "varies": _varies(parts[split], features, layer, pair),
                     "metric": score, "class": ALL, "against": None,
                     "chance": chance(truth[split], score)}
            yield place | scores.row()
            yield from (place | {"metric": "f1", "class": str(name), "value": value,
                                 "chance": np.nan}
                        for name, value in zip(target.classes, scores.by_class(), strict=True)
                        if np.isfinite(value))
            if features == "code":
                others = {name: found[split, layer, name]
                          for name in ("residual", "untrained", "shuffled")}
                others |= {f"layer {other}": found[split, other, "code"]
                           for other in codes.layers if other != layer}
                yield from (place | {"against": name, "chance": np.nan} | scores.row(other)
                            for name, other in others.items())

    table = pd.DataFrame(list(rows()))
    return table.assign(n_train=n_train, n=n, n_combinations=table["split"].map(
        {split: weights[split].shape[1] for split in SPLITS}))


def _of_shuffled(
    x: np.ndarray, y: np.ndarray, groups: np.ndarray, multilabel: bool, probe: LogisticProbe,
    seed: int,
) -> tuple[LogisticProbe, ...]:
    """The same probes, with the penalty of the true labels, on labels that are dealt anew."""
    return tuple(
        fit_probe(x, shuffle_labels(y, groups, np.random.default_rng(child)), groups,
                  multilabel=multilabel, penalties=[probe.penalty], seed=seed)
        for child in np.random.SeedSequence(seed).spawn(N_SHUFFLES))


def _varies(
    codes: tuple[LatentCodes, LatentCodes], features: str, layer: int, pair: str
) -> bool:
    read = Features("code" if features == "shuffled" else features, codes[features == "untrained"])
    return varies(read.values(layer, pair))


def best_layer(scores: pd.DataFrame, split: str = "test") -> int:
    """Return the layer whose codes score best on a split."""
    own = where(scores, split=split, features="code", **{"class": ALL})
    own = own[own["against"].isna()]
    return int(own["layer"].to_numpy()[own["value"].to_numpy().argmax()])


def first_varying(scores: pd.DataFrame) -> int:
    """Return the first layer whose codes differ between instances."""
    return int(scores.loc[(scores["features"] == "code") & scores["varies"], "layer"].min())


def against(scores: pd.DataFrame, layer: int, other: str) -> dict[str, Any]:
    """Return the difference of a layer's code from other features or another layer, on `ood`."""
    rows = where(scores, split="ood", features="code", layer=layer, against=other)
    return {name: float(rows[name].iloc[0]) for name in ("value", "low", "high")}


def above_controls(
    claim: Claim, found: Sequence[Found], layer: Callable[[pd.DataFrame], int]
) -> list[dict[str, Any]]:
    """Return evidence that the code of a layer is read better than the controls of a claim."""
    return [about(member, run) | {"control": control}
            | against(scores, layer(scores), CONTROLS[control])
            for member, run, scores in found for control in controls_of(claim)]


def in_layer(
    found: Sequence[Found], layer: Callable[[pd.DataFrame], int]
) -> pd.DataFrame:
    """Return the scores of all features on `ood` in one layer of each run, a row each."""
    rows = []
    for member, run, scores in found:
        own = where(scores, split="ood", layer=layer(scores), **{"class": ALL})
        rows.append(own[own["against"].isna()].assign(**about(member, run)))
    return pd.concat(rows, ignore_index=True)


def with_controls(scores: pd.DataFrame) -> str:
    """Say the scores of a layer (`in_layer`): per kind, with those of the controls.

    What does not vary between instances, as a residual stream where all share the query, is left
    out.
    """
    said = [per_kind(where(scores, features="code"))]
    for features, name in (("untrained", "the untrained model"), ("shuffled", "shuffled labels"),
                         ("residual", "the residual stream")):
        rows = where(scores, features=features)
        said += [f"{name} {per_kind(rows, runs=False)}"] if rows["varies"].any() else []
    return "; ".join(said)


__all__ = ["ALL", "CONTROLS", "SPLITS", "above_controls", "against", "best_layer",
           "first_varying", "in_layer", "probe_scores", "with_controls"]
