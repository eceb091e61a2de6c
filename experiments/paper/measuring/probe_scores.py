"""How much better are labels decoded from codes than from their controls? (Fig. 2B and 5F)

What claims are judged by are the contrasts of `decode`, on two splits at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.experiments.paper.claims import Claim
from latentcode.experiments.paper.measuring.over_runs import controls_of, per_kind
from latentcode.experiments.paper.reproduction import about
from latentcode.probes.common.features import Features, varies
from latentcode.probes.common.results import where
from latentcode.probes.decoding.decoding import decode_splits
from latentcode.runs import Run
from latentcode.subjects import subject
from latentcode.tasks import make_task

SPLITS = ("test", "ood")
"""Where probes are scored: fresh instances of the functions or rules of training, then held-out
combinations. Layers are chosen on the first."""
ALL = "(all)"
"""What stands for a class where a score is of all of them."""
COLUMNS = ["layer", "features", "metric", "class", "against", "value", "low", "high", "chance"]
CONTROLS: Mapping[str, str] = {
    "shuffled labels": "shuffled", "the code of the untrained model": "untrained"}
"""What the claims call a control -> features."""


Found = tuple[str, Run, pd.DataFrame]
"""Member, run, and what `probe_scores` says of it."""


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
    against  other features, `chance`, or `layer 1`, the first in which codes vary, whose score is
             subtracted; None: nothing
    value, low, high   with the 95 % interval over combinations, of the difference where there is
             one
    chance   the best score that any constant answer reaches
    """
    task = make_task(run.config.task).probe_config
    task = task if inputs is None else replace(task, inputs=inputs)
    of = subject(run, task, device=device)
    sizes = {"train": n_train, **dict.fromkeys(SPLITS, n)}
    train, *heldout = (of.codes(split, n=size, residuals=True, seed=seed)
                       for split, size in sizes.items())
    untrained = [of.codes(split, n=size, untrained=True, seed=seed)
                 for split, size in sizes.items()]
    # An instance of a small task can come twice, which the claims have always counted.
    found = decode_splits(train, heldout, [label], metrics=["balanced_accuracy"],
                          untrained=untrained, allow_overlap="instances", seed=seed)
    tables = []
    for split, codes, initial, result in zip(SPLITS, heldout, untrained[1:], found, strict=True):
        of_all = result.table.assign(**{"class": ALL, "against": None})
        of_classes = result.per_class.rename(columns={"f1": "value"}).assign(
            metric="f1", against=None)
        differences = result.contrasts.table.rename(columns={"quantity": "metric"}).assign(
            **{"class": ALL})
        table = pd.concat([each.reindex(columns=COLUMNS) for each in (
            of_all, of_classes, differences) if len(each)], ignore_index=True)
        pair, = (pair.name for pair in codes.pairs)
        tables.append(table.assign(
            split=split, n=n, n_combinations=result.table["n_heldout_combinations"].max(),
            varies=[_varies(codes, initial, *place, pair)
                    for place in zip(table["features"], table["layer"], strict=True)]))
    return pd.concat(tables, ignore_index=True).assign(n_train=n_train)


def _varies(
    codes: LatentCodes, untrained: LatentCodes, features: str, layer: int, pair: str
) -> bool:
    read = Features("code" if features == "shuffled" else features,
                    untrained if features == "untrained" else codes)
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
