"""The numbers of all jobs in two tables, and the cells that a reader sees of them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from latentcode.experiments.studies.rows.jobs import Job
from latentcode.probes.common.results import where
from latentcode.probes.decoding import DecodingResult
from latentcode.probes.decoding.naming import MODELS, parted

ORDER = ("code", "row", "row.last_row", "row.examples", "codes", "values", "residual", "tokens")
"""The order in which features are listed."""
LEFT_OUT = ("run", "pair", "n_train", "n_heldout", "n_train_combinations",
            "n_heldout_combinations", "n_classes", "C")
"""Columns that are the same for all, or that only results of single models need."""


def joined(found: Sequence[tuple[Job, DecodingResult]]) -> dict[str, pd.DataFrame]:
    """Return `scores` and `given` of all jobs, after the columns that tell them apart."""
    tables = {}
    for name, field in (("scores", "table"), ("given", "given")):
        parts = [getattr(result, field).assign(**{"inputs": "", **job.about})
                 for job, result in found]
        table = pd.concat(parts, ignore_index=True)
        first = ["part", "kind", "seed", "step", "inputs"]
        rest = [column for column in table if column not in (*first, *LEFT_OUT)]
        table["layer"] = table["layer"].astype(str)
        rank = parted(table)["features"].map(ORDER.index)
        order = table.assign(features=rank).sort_values(
            ["kind", "features", "layer"], kind="stable")
        tables[name] = table.loc[order.index, first + rest]
    return tables


def cells(table: pd.DataFrame, index: Sequence[str], column: str, value: str) -> pd.DataFrame:
    """Return a row per place and a column per label: trained / untrained / shuffled.

    Over several seeds a value is their mean, and for the trained model (smallest to largest).
    """
    rows = []
    for place, block in parted(table).groupby(list(index), sort=False):
        row: dict[str, object] = dict(zip(index, place, strict=True))
        for name, asked in block.groupby(column, sort=False):
            row[str(name)] = " / ".join(
                _cell(where(asked, model=model), value, spread=model == "trained")
                for model in MODELS)
            trained = where(asked, model="trained")
            if trained[value].isna().all():
                same = "chance" in trained and (trained["chance"] == 1.0).all()
                row[str(name)] = "the same for all" if same else "nothing to read"
        rows.append(row)
    return pd.DataFrame(rows)


def _cell(block: pd.DataFrame, value: str, *, spread: bool) -> str:
    values = block[value].dropna()
    if values.empty:
        return "–"
    mean = _written(values.mean())
    if not spread:
        return mean
    unread = f", {len(values)} of {len(block)} seeds" if len(values) < len(block) else ""
    several = f" ({ranged(values)})" if len(values) > 1 else ""
    return f"{mean}{several}{unread}"


def _written(value: float) -> str:
    return f"{value:z.2f}"  # z: no minus before a zero


def ranged(values: pd.Series) -> str:
    """Return the smallest and the largest of some values, `0.12 to 0.17`, or the one there is."""
    low, high = _written(values.min()), _written(values.max())
    return low if low == high else f"{low} to {high}"


def headline(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies, and the F1 of groups."""
    return scores[scores["metric"].isin(["accuracy", "f1"])]
