"""Figures of scores: curves over an axis by kind of attention, and numbers beside published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from latentcode.experiments.paper.reproduction import KIND_TITLES
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.probes.common.figures import panels

KIND_STYLES: Mapping[str, tuple[str, str]] = {
    "softmax": (PALETTE[0], "o"), "linear": (PALETTE[1], "s"), "hyla": (PALETTE[2], "^")}
"""Colour and marker of the three main kinds."""
AXIS_TITLES: Mapping[str, str] = {
    "n_examples": "sequence length", "ood_fraction": "held-out share", "d_model": "d_model",
    "n_layers": "layers", "instances": "training instances", "n_heads": "heads",
    "n_features": "features M", "n_values": "values K"}
"""Columns of tables in words."""
LETTERS_PER_INCH = 12
"""Of a heading."""


@dataclass(frozen=True)
class Curves:
    """One row of panels.

    table   a row per run: `kind`, `value`, the axes, and a `ceiling` where there is one
    ylabel  what `value` is
    across  column on the horizontal axis
    panels  column that tells panels apart; None: one panel
    log     whether the vertical axis is logarithmic
    """

    table: pd.DataFrame
    ylabel: str
    across: str
    panels: str | None = None
    log: bool = False

    def parts(self) -> list[tuple[str, pd.DataFrame]]:
        """Return (title, rows) of every panel."""
        if self.panels is None or self.table.empty:
            return [("", self.table)]
        return [(f"{AXIS_TITLES[self.panels]} {short(float(str(value)))}", rows)
                for value, rows in self.table.groupby(self.panels)]


def curves_of_kinds(name: str, rows: Sequence[Curves], heading: str = "") -> dict[str, Figure]:
    """Return name -> figure with a row of panels for each table; nothing where all are empty.

    A point is the mean over the runs of a kind, with its standard error where there are several.
    """
    rows = [row for row in rows if not row.table.empty]
    if not rows:
        return {}
    n_columns = max(len(row.parts()) for row in rows)
    with panels(len(rows), n_columns, max(1.75 * n_columns + 1.6, 4.2), 2.2 * len(rows) + 0.3,
                sharey="row") as (figure, grid):
        for axes_of_row, row in zip(grid, rows, strict=True):
            parts = row.parts()
            for axes in axes_of_row[len(parts):]:
                axes.set_visible(False)
            for axes, (title, table) in zip(axes_of_row, parts, strict=False):
                _curves(axes, row, table)
                axes.set_title(title)
            axes_of_row[0].set_ylabel(row.ylabel)
        labels = {label: handle for axes in grid.flat
                  for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(labels.values(), labels.keys(), loc="outside right center")
        _head(figure, heading)
    return {name: figure}


def _head(figure: Figure, heading: str) -> None:
    if heading:
        figure.suptitle(fill(heading, int(LETTERS_PER_INCH * figure.get_figwidth())), fontsize=9.0)


def _curves(axes: Axes, row: Curves, table: pd.DataFrame) -> None:
    ticks = sorted(row.table[row.across].unique())
    place = {value: i for i, value in enumerate(ticks)}
    for kind, title in KIND_TITLES.items():
        own = table[table["kind"] == kind]
        color, marker = KIND_STYLES[kind]
        if own.empty:
            continue
        groups = own.groupby(row.across)["value"]
        mean, error = groups.mean(), groups.sem().fillna(0.0)
        # Beside each other, or error bars would hide one another.
        shift = 0.06 * (list(KIND_TITLES).index(kind) - 1)
        axes.errorbar([place[value] + shift for value in mean.index], mean, yerr=error,
                      color=color, marker=marker, markersize=4, capsize=2, label=title)
    if "ceiling" in table:
        best = table.groupby(row.across)["ceiling"].mean()
        where = np.array([place[value] for value in best.index])
        axes.hlines(best, where - 0.35, where + 0.35, color=GREY, linestyle="dashed",
                    linewidth=1.0, label="Bayes-optimal")
    axes.set_xticks(range(len(ticks)), [short(value) for value in ticks])
    axes.set_xlim(-0.5, len(ticks) - 0.5)
    axes.set_xlabel(AXIS_TITLES[row.across])
    if row.log:
        axes.set_yscale("log")
        # Losses span less than a decade or two: a few plain numbers rather than powers of ten.
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif 0.0 <= row.table["value"].min() <= row.table["value"].max() <= 1.0:
        axes.set_ylim(-0.03, 1.03)


def short(value: float) -> str:
    """Return a number as ticks have it: 0.3, 96, 96 k, 20 M."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value / 1e3:.3g} k" if value >= 1e4 else f"{value:g}"


@dataclass(frozen=True)
class Numbers:
    """Numbers of ours beside published ones.

    table   rows in their order: `row`, `published`, `published_error`, `ours`, `ours_error`, `n`
    xlabel  what the numbers are
    title   of the panel
    """

    table: pd.DataFrame
    xlabel: str
    title: str = ""


def beside_published(name: str, columns: Sequence[Numbers], heading: str = "") -> dict[str, Figure]:
    """Return name -> figure: a panel per table, a line per row; nothing without numbers of ours."""
    if not any(column.table["ours"].notna().any() for column in columns):
        return {}
    n_rows = max(len(column.table) for column in columns)
    with panels(1, len(columns), 4.1 * len(columns) + 2.2, 0.27 * n_rows + 1.3,
                sharey=True) as (figure, (row,)):
        for axes, column in zip(row, columns, strict=True):
            _numbers(axes, column)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        _head(figure, heading)
    return {name: figure}


def _numbers(axes: Axes, column: Numbers) -> None:
    table = column.table
    lines = np.arange(len(table))
    axes.errorbar(table["published"], lines - 0.13, xerr=table["published_error"], fmt="D",
                  color=GREY, markersize=3.5, capsize=2, label="published")
    axes.errorbar(table["ours"], lines + 0.13, xerr=table["ours_error"].fillna(0.0), fmt="o",
                  color=PALETTE[0], markersize=4, capsize=2, label="ours")
    axes.set_yticks(lines, table["row"])
    axes.set_ylim(len(table) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.set_xlabel(column.xlabel)
    axes.set_title(column.title, loc="left")
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
