"""Where are the criteria met? They are applied to the paired differences of every run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from latentcode.experiments.evidence.criteria import criteria
from latentcode.experiments.evidence.rules import difference, together
from latentcode.probes.common.results import where
from latentcode.probes.decoding.naming import parted

CRITERIA = criteria("operation")
"""Written before the models were measured."""
NAMES = {"operation": "interchange"}
"""The minimal pair's source has another operation alone; its patch is called `interchange`."""
STREAMS = ("residual", "tokens")
"""Of the study of rows: residual streams entering a layer, of the response and of all tokens."""
WHERE = ("site", "scope", "layers")
"""Columns that name a place."""
BOTH = "operation+operands"
"""The source whose own answer is neither the base's operation's nor its operands'."""


def place_of(row: Mapping[Any, Any]) -> str:
    """Return a place in words."""
    return f"{row['site']}, {row['scope']}, layers {row['layers']}"


def answer_entering(scores: pd.DataFrame) -> dict[tuple[str, str, int], float]:
    """How well is the answer read from the residual streams that enter a layer, less the null?

    scores  those of the study of rows, of inputs as the models were trained on -> (task, kind,
            layer) -> balanced accuracy of the trained model less that of its initial weights (of
            a constant answer, where the stream of these does not vary): the mean over runs, of
            the better of the two streams
    """
    read = parted(where(scores[scores["part"] != "milestones"], metric="balanced_accuracy",
                        label="answer", width=128))
    read = read[read["features"].isin(STREAMS) & read["inputs"].fillna("").isin(("", "uniform"))]
    index = ["part", "kind", "layer", "features", "seed"]
    by_model = read.pivot_table(index=index, columns="model", values="value", dropna=False)
    null = by_model["untrained"].fillna(read.groupby(index)["chance"].first())
    over = (by_model["trained"].fillna(null) - null).dropna()
    means = over.groupby(["part", "kind", "layer", "features"]).mean()
    best = means.groupby(["part", "kind", "layer"]).max().reset_index(name="value")
    return {(str(row["part"]), str(row["kind"]), int(row["layer"])): float(row["value"])
            for row in best.to_dict("records")}


def met(
    comparisons: pd.DataFrame, entering: Mapping[tuple[str, str, int], float] | None = None
) -> pd.DataFrame:
    """Which statements' criteria does each kind meet at which place?

    comparisons  those of `InterventionResult`, of all runs, with columns `task`, `kind` and `run`
    entering     `answer_entering`

    One row per task, kind, place and statement: for every source that is compared with, the mean of
    the difference over the runs (`mean against operands`) and the lowest end of an interval (`low
    against operands`); `runs`; `met`, whether all of them pass; `answer entering first` and
    `last`, for the first and the last of the layers written; and `met in these layers`, whether it
    is met and, if it is an operation, both of these are known and at most `answer_not_there_yet`.
    (The criteria speak of the first layer alone. What is written into later ones may hold what was
    worked out in between.)
    """
    rows: list[dict[str, Any]] = []
    for key, block in comparisons.groupby(["task", "kind", *WHERE], sort=False):
        assert isinstance(key, tuple)
        for statement, rule in CRITERIA["statements"].items():
            mine = block[(block["patch"] == rule["source"]) & (block["class"] == rule["class"])]
            row: dict[str, Any] = {
                **dict(zip(("task", "kind", *WHERE), key, strict=True)), "statement": statement}
            parts = []
            for other in rule["against"]:
                found = mine[mine["against"] == NAMES.get(other, other)]
                row[f"mean against {other}"] = found["value"].mean()
                row[f"low against {other}"] = found["low"].min(skipna=False)
                parts.append(difference(f"{statement}, against {other}", found, CRITERIA["least"],
                                        fewest=1))
            layers = [int(layer) for layer in str(row["layers"]).split(",")]
            reached = [(entering or {}).get((str(row["task"]), str(row["kind"]), layer))
                       for layer in (layers[0], layers[-1])]
            early = rule["class"] != "operation" or all(
                over is not None and over <= CRITERIA["answer_not_there_yet"] for over in reached)
            met = together(parts) == "agrees"
            rows.append({**row, "runs": mine["run"].nunique(), "met": met,
                         "answer entering first": reached[0], "answer entering last": reached[1],
                         "met in these layers": met and early})
    return pd.DataFrame(rows)

