"""What came out of a sweep? A tidy table of all members, and the best setting of each kind.

Both hold results alone and no times: a sweep that was interrupted and one that was not write
the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentcode.errors import LatentCodeError
from latentcode.files.storage import replace_file, write_text
from latentcode.metrics import mean_metric
from latentcode.runs import Run
from latentcode.sweep.grid import HYPERPARAMETERS, SEEDS

SelectOn = Literal["test", "ood"]
TABLE_PARQUET, TABLE_CSV, SUMMARY_CSV = "table.parquet", "table.csv", "summary.csv"
RESULTS: tuple[str, ...] = ("split", "metric", "mean", "se", "n", "step", "complete", "error")
"""Columns of the table after `member` and the axes."""


def member_table(
    out: Path, points: Mapping[str, Mapping[str, Any]], errors: Mapping[str, str]
) -> pd.DataFrame:
    """Return one row per member, split and metric: its newest value.

    out     folder of the sweep
    points  member -> field -> value; the fields become columns
    errors  member -> why it cannot continue

    `step` is that of the value, `complete` says whether the member was trained to the last step,
    and `error` why it was not. A member without any value has one row.
    """
    rows: list[dict[str, Any]] = []
    for member, point in points.items():
        complete, values = _newest(out / member)
        fixed = {"member": member, **{axis: _cell(value) for axis, value in point.items()}}
        state = {"complete": complete, "error": None if complete else errors.get(member)}
        rows += [{**fixed, **value, **state} for value in values] or [{**fixed, **state}]
    axes = list(next(iter(points.values())))
    table = pd.DataFrame(rows, columns=["member", *axes, *RESULTS])
    for axis in axes:
        with np.errstate(invalid="ignore"):  # pandas 2.2 casts 1e30 to an integer to see if it fits
            table[axis] = table[axis].convert_dtypes()
    return table.astype({
        "member": "string", "split": "string", "metric": "string", "mean": "float64",
        "se": "float64", "n": "Int64", "step": "Int64", "complete": "bool", "error": "string"})


def summarize(
    table: pd.DataFrame, headline: str, select_on: SelectOn = "test", *,
    lower_is_better: bool = False,
) -> pd.DataFrame:
    """Return the best setting of each condition: mean and sd / sqrt(n) over its n seeds.

    A condition is a point on the axes that are neither seeds nor hyperparameters, such as the
    kind of attention; a setting is a point on those of the hyperparameters. The best setting is
    the one with the highest mean over seeds of the metric `headline` on the split `select_on` (the
    lowest where `lower_is_better`), the first of equals. Only settings of which all members are
    complete take part; `settings` says how many there are and `settings_complete` how many took
    part. A condition without one has a row without values.

    The paper selects on `ood`; `test` leaves the held-out combinations out of the choice.
    """
    axes = [name for name in table.columns if name not in ("member", *RESULTS)]
    hyperparameters = [axis for axis in axes if axis in HYPERPARAMETERS]
    conditions = [axis for axis in axes if axis not in (*HYPERPARAMETERS, *SEEDS)]
    rows = []
    for condition, of_condition in _groups(table, conditions):
        settings = list(_groups(of_condition, hyperparameters))
        candidates = [(_score(rows_of, headline, select_on), setting, rows_of)
                      for setting, rows_of in settings if rows_of["complete"].all()]
        fixed = {**condition, "selected_on": select_on, "settings": len(settings),
                 "settings_complete": len(candidates)}
        ranked = [candidate for candidate in candidates if not math.isnan(candidate[0])]
        if not ranked:
            rows.append(fixed)
            continue
        best = min if lower_is_better else max
        _, setting, chosen = best(ranked, key=lambda candidate: candidate[0])
        for result, values in _groups(chosen, ["split", "metric"]):
            metric = mean_metric(values["mean"].to_numpy(dtype=np.float64))
            rows.append({**fixed, **setting, **result, "mean": metric.mean, "se": metric.se,
                         "n": metric.n})
    summary = pd.DataFrame(rows, columns=[
        *conditions, *hyperparameters, "selected_on", "settings", "settings_complete", "split",
        "metric", "mean", "se", "n"])
    return summary.astype({"mean": "float64", "se": "float64", "n": "Int64"})


def render(summary: pd.DataFrame, headline: str) -> str:
    """Return the summary of the headline metric as text, a line per condition."""
    fixed = list(summary.columns[:list(summary.columns).index("selected_on")])
    splits = [split for split in dict.fromkeys(summary["split"].dropna())
              if (summary.loc[summary["split"] == split, "metric"] == headline).any()]
    lines = []
    for condition, rows in _groups(summary, fixed):
        line = {name.rpartition(".")[2]: "" if value is None else str(value)
                for name, value in condition.items()}
        for split in splits:
            found = rows[(rows["split"] == split) & (rows["metric"] == headline)]
            line[f"{split} {headline}"] = "" if found.empty else f"{found['mean'].iloc[0]:.4f}" + (
                "" if math.isnan(found["se"].iloc[0]) else f" +- {found['se'].iloc[0]:.4f}")
        seeds = rows["n"].dropna()
        line["seeds"] = str(seeds.iloc[0]) if len(seeds) else ""
        line["settings"] = (f"{rows['settings_complete'].iloc[0]} of "
                            f"{rows['settings'].iloc[0]}")
        lines.append(line)
    selected_on = summary["selected_on"].iloc[0]
    how = "as the paper does" if selected_on == "ood" else "`ood` had no say"
    return (f"{pd.DataFrame(lines).to_string(index=False)}\n"
            "mean +- standard error over seeds; of the settings, the best on "
            f"`{selected_on}` ({how})")


def write_tables(out: Path, table: pd.DataFrame, summary: pd.DataFrame) -> None:
    """Write `table.parquet`, `table.csv` and `summary.csv`, each all or nothing."""
    with replace_file(out / TABLE_PARQUET) as temporary:
        table.to_parquet(temporary, index=False)
    write_text(out / TABLE_CSV, table.to_csv(index=False))
    write_text(out / SUMMARY_CSV, summary.to_csv(index=False))


def _newest(path: Path) -> tuple[bool, list[dict[str, Any]]]:
    """Return whether a run is complete, and the newest value of every split and metric."""
    try:
        run = Run.open(path)
        metrics = run.newest_metrics()
    except LatentCodeError:  # not begun, or damaged, which its error tells
        return False, []
    order = {split: number for number, split in enumerate(("train", "test", "ood", "unknown"))}
    metrics = metrics.sort_values(["split", "metric"], kind="stable", key=lambda column: (
        column.map(order) if column.name == "split" else column))
    records = metrics[["split", "metric", "mean", "se", "n", "step"]].to_dict("records")
    return run.is_complete, [{str(key): value for key, value in record.items()}
                             for record in records]


def _cell(value: Any) -> Any:
    """Return a value as a cell: lists as JSON."""
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def _score(rows: pd.DataFrame, headline: str, split: str) -> float:
    """Return the mean over members, NaN if one has no value."""
    values = rows.loc[(rows["split"] == split) & (rows["metric"] == headline), "mean"]
    complete = len(values) == rows["member"].nunique()
    return float(values.mean(skipna=False)) if complete else math.nan


def _groups(
    table: pd.DataFrame, columns: Sequence[str]
) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Return the rows of each point on some columns, in the order in which they appear."""
    if not columns:
        return [({}, table)]
    groups: Any = table.groupby(list(columns), sort=False, dropna=False)
    return [({name: None if pd.isna(value) else value
              for name, value in zip(columns, key, strict=True)}, rows) for key, rows in groups]
