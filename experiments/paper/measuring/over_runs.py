"""What is said, drawn and judged of several runs of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from latentcode.experiments.paper.claims import Claim, Excess
from latentcode.experiments.paper.measuring.words import count
from latentcode.experiments.paper.reproduction import KIND_TITLES, Findings
from latentcode.experiments.paper.verdicts import COLUMNS, evidence


def over_runs(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return the mean over runs with `low`, `high` a standard error away.

    A single run keeps its own interval, which is clustered by combination.
    """
    rows = []
    for _, block in table.groupby(keys, sort=False):
        row = {str(name): value for name, value in block.iloc[0].items()}
        if len(block) > 1:
            mean, se = float(block["value"].mean()), float(np.std(block["value"], ddof=1))
            se /= len(block) ** 0.5
            row |= {"value": mean, "low": mean - se, "high": mean + se}
        rows.append(row)
    return pd.DataFrame(rows, columns=table.columns)


def per_kind(table: pd.DataFrame, *, runs: bool = True) -> str:
    """Say the mean value of each kind, as in `softmax 0.28, HYLA 0.27 (one run of each)`.

    table  a row per run, with `kind` and `value`
    runs   whether their number is said
    """
    groups = {kind: table.loc[table["kind"] == kind, "value"] for kind in KIND_TITLES}
    groups = {kind: values for kind, values in groups.items() if len(values)}
    said = ", ".join(f"{KIND_TITLES[kind]} {values.mean():.2f}" for kind, values in groups.items())
    return f"{said} ({n_runs(table)})" if runs else said


def n_runs(table: pd.DataFrame) -> str:
    """Say how many runs a table has of each kind, a row per run."""
    numbers = table.groupby("kind").size()
    several = len(numbers) > 1
    if numbers.nunique() == 1:
        n = int(numbers.iloc[0])
        return count(n, "run") + (" of each" if several else "")
    return ", ".join(f"{title} {count(int(numbers[kind]), 'run')}"
                     for kind, title in KIND_TITLES.items() if kind in numbers)


def nothing(what: str) -> Findings:
    """Return the findings where no run of some models has finished."""
    return Findings(f"No run of {what} has finished.", {})


def controls_of(claim: Claim) -> tuple[str, ...]:
    """Return what is subtracted from the quantity of a claim that is judged by an excess."""
    assert isinstance(claim.rule, Excess), claim.id
    return claim.rule.controls


def with_control(
    claims: Iterable[Claim], rows: Mapping[str, Iterable[Mapping[Any, Any]]]
) -> dict[str, list[dict[Any, Any]]]:
    """Return claim -> its rows, under the name of the one control that it has."""
    return {claim.id: [{**row, "control": controls_of(claim)[0]} for row in rows[claim.id]]
            for claim in claims}


def judged(rows: Mapping[str, Iterable[Mapping[Any, Any]]]) -> dict[str, pd.DataFrame]:
    """Return claim -> evidence, of rows that may say more of a run than evidence does."""
    return {claim: evidence({name: row[name] for name in COLUMNS if name in row} for row in found)
            for claim, found in rows.items()}
