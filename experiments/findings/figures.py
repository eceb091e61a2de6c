"""Figures of FINDINGS.md, from the tables that stand beside it.

    python -m latentcode.experiments.findings.figures

draws `experiments/results/messages/messages.png`, rates of patched problems beside their ceilings,
and `experiments/results/messages/table.png`, three rows of Table A1, each run a dot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import tyro
from matplotlib.figure import Figure

from latentcode.experiments.findings.messages import CEILING
from latentcode.experiments.paper.reproduce import read_result
from latentcode.figures.style import style

RESULTS = Path(__file__).parents[1] / "results"
KINDS = ("softmax", "linear", "hyla")
RESPONSE = "codes of the response"
PANELS = (
    ("messages, context to the feature's last row", "operation", "messages, context to last row"),
    ("values of the context", "operation", "values of the context"),
    (RESPONSE, "operation", "codes of the response: operation"),
    (RESPONSE, "answer", "codes of the response: answer"))
"""Patch, outcome and title of each panel."""
ROWS = {"Softmax attention": "softmax", "Linear attention": "linear", "HYLA": "hyla"}
TASKS = {"logic": "fuzzy logic, R² × 100", "sraven": "SRAVEN, accuracy in %"}


def places(kinds: pd.Series[str], step: float = 0.12) -> pd.Series[float]:
    """Return where the dots of runs stand: around the number of their kind, side by side."""
    return kinds.map(KINDS.index) + step * (kinds.groupby(kinds).cumcount() - 1)


def dots(
    axis: Any, rows: pd.DataFrame, label: str, step: float = 0.12, shift: float = 0.0, **how: Any
) -> None:
    """Draw values with their intervals, a dot per run."""
    axis.errorbar(places(rows["kind"], step) + shift, rows["value"], label=label, fmt="o",
                  markersize=3,
                  yerr=(rows["value"] - rows["low"], rows["high"] - rows["value"]), **how)


def draw_messages(table: pd.DataFrame, path: Path) -> None:
    """Draw the rate of an outcome per run, with its ceiling and with a third rule's source."""
    table = table[table["pairs"] == "both"]
    operation = table[table["source"] == "operation+operands"]
    with style():
        figure = Figure(figsize=(12.0, 3.2), layout="constrained")
        for axis, (patch, outcome, title) in zip(
                figure.subplots(1, len(PANELS), sharey=True), PANELS, strict=True):
            ceiling = operation[(operation["patch"] == CEILING)
                                & (operation["outcome"] == "operation")]
            if outcome == "operation":
                axis.plot(places(ceiling["kind"]), ceiling["value"], "_", color="0.4",
                          markersize=9, label="ceiling: inputs of the context exchanged")
            dots(axis, operation[(operation["patch"] == patch) & (operation["outcome"] == outcome)],
                 "source with another rule and other operands")
            dots(axis, table[(table["source"] == "unrelated") & (table["patch"] == patch)
                             & (table["outcome"] == outcome)], "source with a third rule",
                 alpha=0.5)
            axis.set_xticks(range(len(KINDS)), KINDS)
            axis.set_title(title)
            axis.set_ylim(-0.03, 1.03)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center",
                      ncols=3)
        figure.savefig(path)


def draw_table(tables: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw three rows of Table A1: our runs, and the published mean with its standard error."""
    published, runs = (pd.DataFrame(tables[name]) for name in ("rows", "runs"))
    with style():
        figure = Figure(figsize=(8.0, 3.0), layout="constrained")
        for axis, (task, title) in zip(figure.subplots(1, len(TASKS)), TASKS.items(), strict=True):
            rows = published[(published["task"] == task) & published["row"].isin(ROWS)]
            axis.errorbar(rows["row"].map(ROWS).map(KINDS.index) + 0.3, rows["published"],
                          yerr=rows["published_error"], fmt="s", color="0.4", markersize=4,
                          label="published: best of a grid, mean ± standard error")
            ours = runs[(runs["task"] == task) & runs["kind"].isin(KINDS)]
            axis.plot(places(ours["kind"]), 100 * ours["value"], "o", markersize=4,
                      label="our runs, one setting")
            axis.set_xticks(range(len(KINDS)), KINDS)
            axis.set_title(title)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center",
                      ncols=2)
        figure.savefig(path)


def main(results: Path = RESULTS) -> None:
    """Draw both figures.

    Args:
        results: Folder of the tables.
    """
    draw_messages(pd.read_csv(results / "messages/messages.csv"), results / "messages/messages.png")
    draw_table(read_result(results / "reproduced/paper/tabA1")["tables"],
               results / "messages/table.png")


if __name__ == "__main__":
    tyro.cli(main)
