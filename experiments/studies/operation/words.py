"""Which words are earned? The criteria, applied to the paired differences of every run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

CRITERIA: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "criteria.yaml").read_text(encoding="utf-8"))
"""Written before the models were measured."""
NAMES = {"operation": "donor"}
"""The minimal pair's donor has another operation alone; its write is called `donor`."""
WHERE = ("site", "scope", "layers")
"""Columns that name a place."""


def earned(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Which words does each kind earn at which place?

    comparisons  those of `InterventionResult`, of all runs, with columns `task`, `kind` and `run`

    One row per task, kind, place and word: for every donor that is compared with, the mean of the
    difference over the runs (`mean against operands`) and the lowest end of an interval (`low
    against operands`); `runs`; and `earned`, whether all of them pass.
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
            rows.append({**row, "runs": mine["run"].nunique(), "earned": all(passed)})
    return pd.DataFrame(rows)

