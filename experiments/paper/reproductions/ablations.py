"""Table A1, the 14 ablations, and the reviews' table of nonlinearities: ours beside the printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latentcode.experiments.paper.claims import Claim, Setting, printed
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    LETTERS_PER_INCH,
    METRIC,
    NOTHING,
    Findings,
    Reproduction,
    Work,
    beside_ceiling,
    learning,
    metric_evidence,
    of_kinds,
    scores,
    sentences,
)
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.probes.common.figures import panels

ROWS = {
    "softmax": "Softmax attention",
    "linear": "Linear attention",
    "hyla": "HYLA",
    "linear_rms_head": "Linear + RMSHead",
    "linear_rms_head_relu": "Linear + RMSHead + nonlinear value ?",
    "hyla_no_rms_head": "HYLA − RMSHead",
    "hyla_linear": "HYLA − nonlinearity",
    "hyla_linear_no_rms_head": "HYLA − nonlinearity − RMSHead",
    "hyla_softmax": "HYLA − RMSHead + softmax ?",
    "hyla_deep": "HYLA + deep value network",
    "hyla_softmax_rms_head": "HYLA + softmax ?",
    "softmax_moe": "Softmax attention + MoE",
    "linear_moe": "Linear attention + MoE",
    "hyla_moe": "HYLA + MoE",
}
"""The rows of Table A1 as they are printed; `?`: another reading is possible, and the table says
ours."""
KINDS = f"kind={','.join(ROWS)}"
OF_TABLE = {
    "paper": (Setting("paper", "logic", (KINDS,)), Setting("paper", "sraven", (KINDS,))),
    "small": (Setting("small", "logic", (KINDS, "training.steps=500")),
              Setting("small", "sraven", (KINDS, "task.n_features=2", "training.steps=750"))),
    "smoke": (Setting("smoke", "logic", ("kind=softmax,linear,hyla,hyla_deep",)),
              Setting("smoke", "sraven", ("kind=softmax,linear,hyla",)))}
COLUMNS = {"logic": "Fuzzy logic, 100 × R² on held-out functions",
           "sraven": "SRAVEN, 100 × OOD accuracy"}
NONLINEARITIES = "model.nonlinearity=gelu,relu,sigmoid,silu,tanh"
OF_REVIEWS = {
    preset: (Setting(preset, "sraven", ("kind=hyla", nonlinearities, *reduced)),
             Setting(preset, "sraven", ("kind=softmax", *reduced)))
    for preset, nonlinearities, reduced in (
        ("paper", NONLINEARITIES, ()),
        ("small", NONLINEARITIES, ("task.n_features=2", "training.steps=750")),
        ("smoke", "model.nonlinearity=relu,silu", ()))}


def of_table(work: Work) -> Findings:
    """Return R² and accuracy on `ood` of every row, beside the published ones."""
    runs = {setting.task: scores(work, [setting], "ood", METRIC[setting.task])
            for setting in OF_TABLE[work.preset]}
    rows = beside(((ROWS[kind], claim, table[table["kind"] == kind])
                   for task, table in runs.items()
                   for kind, claim in _printed("tabA1", task, "kind").items()),
                  comparable=work.preset == "paper")
    return _beside_printed(
        "tabA1", work, OF_TABLE[work.preset], _summary(runs), rows,
        pd.concat([table for table in runs.values() if len(table)] or list(runs.values()),
                  ignore_index=True),
        {title: rows[rows["task"] == task] for task, title in COLUMNS.items()},
        "Rows marked ? leave room for another reading; the column `reading` says which one was "
        "run.")


def of_reviews(work: Work) -> Findings:
    """Return accuracy on `ood` of HYLA with every nonlinearity, and that of softmax attention."""
    settings = OF_REVIEWS[work.preset]
    runs = scores(work, settings, "ood", "accuracy", ["model.nonlinearity"])
    hyla = runs[runs["kind"] != "softmax"]
    rows = beside(((name, claim, hyla[hyla["nonlinearity"] == name]) for name, claim in _printed(
        "nonlinearity", "sraven", "model.nonlinearity").items()), comparable=work.preset == "paper")
    done = rows[rows["n"] > 0]
    softmax = in_points(runs[runs["kind"] == "softmax"])
    return _beside_printed(
        "nonlinearity", work, settings,
        sentences(
            "OOD accuracy of HYLA in points: " + ", ".join(
                f"{row.row} {row.ours:.1f}" for row in done.itertuples()) + "."
            if len(done) else "",
            f"Softmax attention: {softmax['ours']:.1f}." if softmax["n"] else "",
            beside_ceiling(runs)) or NOTHING,
        rows, runs, {"100 × OOD accuracy": rows})


def _beside_printed(
    name: str, work: Work, settings: Sequence[Setting], summary: str, rows: pd.DataFrame,
    runs: pd.DataFrame, columns: Mapping[str, pd.DataFrame], *notes: str,
) -> Findings:
    """Return the findings of a table; `columns` are its rows by what the numbers are."""
    heading, of_runs = learning(work, settings)
    return Findings(
        summary=summary,
        tables={"rows": rows, "runs": runs},
        figures={name: _figure(columns, heading)} if rows["ours"].notna().any() else {},
        evidence={claim.id: metric_evidence(work, claim, METRIC[claim.setting.task], "ood")
                  for claim in work.claims},
        notes=(*of_runs, *notes))


def in_points(values: pd.DataFrame) -> dict[str, float]:
    """Return 100 x the mean of `value` over splits, its standard error, and how many splits.

    Runs that share a split count as their mean, as the published seed draws the split too.
    """
    splits = 100.0 * values.groupby("split_seed")["value"].mean().to_numpy(np.float64)
    n = len(splits)
    return {"ours": float(splits.mean()) if n else float("nan"), "n": n,
            "ours_error": float(splits.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")}


def beside(
    claims: Iterable[tuple[str, Claim, pd.DataFrame]], *, comparable: bool
) -> pd.DataFrame:
    """Return a row per printed number, in points, with ours beside it.

    claims      (name of the row, claim, our scores)
    comparable  whether ours are of the published setting, so that a difference says something
    """
    rows = []
    for name, claim, values in claims:
        assert claim.published is not None
        ours = in_points(values)
        row = {"row": name, "task": claim.setting.task, "published": claim.published.value,
               "published_error": claim.published.error, **ours}
        if comparable:
            row["difference"] = ours["ours"] - claim.published.value
        rows.append({**row, "reading": claim.reading})
    return pd.DataFrame(rows)


def _printed(result: str, task: str, axis: str) -> dict[str, Claim]:
    """Return what a printed number is of, by the axis of its table, and the claim about it."""
    return {str(point[axis]): claim for claim in printed(result) if claim.setting.task == task
            for point in claim.setting.grid.points().values()}


def _summary(runs: dict[str, pd.DataFrame]) -> str:
    if all(table.empty for table in runs.values()):
        return NOTHING
    fuzzy, sraven = runs["logic"], runs["sraven"]
    return sentences(
        f"Of the {len(ROWS)} rows {fuzzy['kind'].nunique()} have runs on fuzzy logic and "
        f"{sraven['kind'].nunique()} on SRAVEN.",
        *(of_kinds(table, what) for table, what in (
            (fuzzy, "R² on held-out functions"), (sraven, "OOD accuracy on SRAVEN"))
          if table["kind"].isin(list(KIND_TITLES)).any()),
        beside_ceiling(sraven))


def _figure(columns: Mapping[str, pd.DataFrame], heading: str) -> Figure:
    """Return numbers of ours beside published ones: a panel per column, a line per row."""
    n_rows, width = max(map(len, columns.values())), 4.1 * len(columns) + 2.2
    with panels(1, len(columns), width, 0.27 * n_rows + 1.3,
                fill(heading, int(LETTERS_PER_INCH * width)),
                sharey=True) as (figure, (row,)):
        for axes, (xlabel, table) in zip(row, columns.items(), strict=True):
            _numbers(axes, table)
            axes.set_xlabel(xlabel)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _numbers(axes: Axes, table: pd.DataFrame) -> None:
    lines = np.arange(len(table))
    axes.errorbar(table["published"], lines - 0.13, xerr=table["published_error"], fmt="D",
                  color=GREY, markersize=3.5, capsize=2, label="published")
    axes.errorbar(table["ours"], lines + 0.13, xerr=table["ours_error"].fillna(0.0), fmt="o",
                  color=PALETTE[0], markersize=4, capsize=2, label="ours")
    axes.set_yticks(lines, table["row"])
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.grid(False, axis="y")
    for line, row in zip(lines, table.to_dict("records"), strict=True):
        printed = f"{row['published']:.1f} ± {row['published_error']:.1f}"
        for text, points, color in ((printed, 6, GREY), (_written(row), 64, PALETTE[0])):
            axes.annotate(text, (1.0, line), xycoords=axes.get_yaxis_transform(),
                          xytext=(points, 0), textcoords="offset points", va="center",
                          fontsize=7.5, color=color)


def _written(row: Mapping[Any, Any]) -> str:
    if not row["n"]:
        return "no run"
    error = "" if np.isnan(row["ours_error"]) else f" ± {row['ours_error']:.1f}"
    return f"{row['ours']:.1f}{error} ({row['n']:.0f})"


REPRODUCTIONS = (
    Reproduction("tabA1", "The ablations of Table A1 on held-out functions and rule combinations",
                 OF_TABLE, of_table),
    Reproduction("nonlinearity", "Nonlinearities in the value network of HYLA, on SRAVEN",
                 OF_REVIEWS, of_reviews))
