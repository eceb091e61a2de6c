"""Which words are earned? The criteria, applied to the paired differences of every run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from latentcode.probes.common.results import where

CRITERIA: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "criteria.yaml").read_text(encoding="utf-8"))
"""Written before the models were measured."""
NAMES = {"operation": "donor"}
"""The minimal pair's donor has another operation alone; its write is called `donor`."""
ANSWER = {"label": "answer", "metric": "balanced_accuracy", "model": "trained", "width": 128}
"""Of the study of rows: the probes that tell whether the answer is there yet."""
STREAMS = ("residual", "tokens")
"""Of the same: residual streams entering a layer, of the response and of all tokens."""
WHERE = ("site", "scope", "layers")
"""Columns that name a place."""


def answer_entering(scores: pd.DataFrame) -> dict[tuple[str, str, int], float]:
    """How well is the answer read from the residual streams that enter a layer, less the null?

    scores  those of the study of rows -> (task, kind, layer) -> balanced accuracy, the mean over
            runs of the better of the two streams; 0 where neither varies
    """
    read = where(scores[scores["part"] != "milestones"], **ANSWER)
    read = read[read["source"].isin(STREAMS)]
    read = read.assign(over=(read["value"] - read["best_constant"]).fillna(0.0),
                       task=read["part"].map(lambda part: part.split(":")[0]))
    means = read.groupby(["task", "kind", "layer", "source"])["over"].mean()
    best = means.groupby(["task", "kind", "layer"]).max()
    found = best.reset_index(name="value").to_dict("records")
    return {(str(row["task"]), str(row["kind"]), int(row["layer"])): float(row["value"])
            for row in found}


def earned(
    comparisons: pd.DataFrame, entering: Mapping[tuple[str, str, int], float] | None = None
) -> pd.DataFrame:
    """Which words does each kind earn at which place?

    comparisons  those of `InterventionResult`, of all runs, with columns `task`, `kind` and `run`
    entering     `answer_entering`

    One row per task, kind, place and word: for every donor that is compared with, the mean of the
    difference over the runs (`mean against operands`) and the lowest end of an interval (`low
    against operands`); `runs`; `earned`, whether all of them pass; and `answer entering`, which for
    an operation to be claimed has to be at most `answer_not_there_yet` in the first layer written.
    """
    rows: list[dict[str, Any]] = []
    for key, block in comparisons.groupby(["task", "kind", *WHERE], sort=False):
        assert isinstance(key, tuple)
        for word, rule in CRITERIA["words"].items():
            mine = block[(block["write"] == rule["donor"]) & (block["class"] == rule["class"])]
            row: dict[str, Any] = {
                **dict(zip(("task", "kind", *WHERE), key, strict=True)), "word": word}
            passed = []
            for other in rule["against"]:
                found = mine[mine["against"] == NAMES.get(other, other)]
                row[f"mean against {other}"] = found["value"].mean()
                row[f"low against {other}"] = found["low"].min(skipna=False)
                passed.append(len(found) > 0 and bool((found["low"] > 0.0).all())
                              and found["value"].mean() >= CRITERIA["least"])
            first = int(str(row["layers"]).split(",")[0])
            reached = (entering or {}).get((str(row["task"]), str(row["kind"]), first))
            rows.append({**row, "runs": mine["run"].nunique(), "earned": all(passed),
                         "answer entering": reached})
    return pd.DataFrame(rows)

