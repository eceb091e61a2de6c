"""Panels that several rooms draw: heat maps, points in a plane, metrics over the steps of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter, MaxNLocator
from pandas.api.types import is_integer_dtype

from latentcode.errors import ProbeError, check
from latentcode.figures.style import (
    DIVERGING,
    GREY,
    PALETTE,
    SEQUENTIAL,
    Figure,
    category_styles,
    style,
)
from latentcode.metrics import is_by_constituent

LONGEST = 28
"""Letters of a name that a tick label shows."""
BRIGHTNESS = (0.299, 0.587, 0.114)
"""Of red, green and blue to the eye."""


def mean_codes_figure(means: pd.DataFrame, title: str, quantity: str) -> Figure:
    """Return mean codes as rows of colours, a column per head; white is 0.

    means     index: what each row is; one column per head
    quantity  what the numbers are, beside the colours
    """
    n_rows, n_heads = means.shape
    rows = means.set_axis([_short(name) for name in means.index]).set_axis(range(n_heads), axis=1)
    letters = max(map(len, rows.index), default=0)
    with style():
        figure = Figure(figsize=(0.07 * letters + float(np.clip(0.17 * n_heads, 1.8, 6.0)) + 1.0,
                                 0.17 * n_rows + 0.95), layout="constrained")
        axes = figure.subplots()
        drawn = heat_map(axes, rows, signed_norm(means.to_numpy()), fontsize=7.5)
        axes.set_xlabel("head")
        axes.set_ylabel(_short(means.index.name or ""), parse_math=False)
        axes.set_title(title, fontsize=8.5, parse_math=False)
        figure.colorbar(drawn, ax=axes, fraction=0.05, pad=0.02, label=quantity)
    return figure


def heat_map(
    axes: Axes, matrix: pd.DataFrame, norm: Normalize, *, numbers: bool = False,
    fontsize: float = 7.0, rotation: float = 0.0,
) -> AxesImage:
    """Draw a matrix as coloured cells and return what a colour bar needs; NaN stays white.

    matrix    its index and columns name the rows and columns, in their order; if the
              columns have numbers, about eight of them are written
    norm      signed where it is a `TwoSlopeNorm`, which chooses the colours
    numbers   whether to write the values into the cells
    rotation  of the names of columns, in degrees
    """
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    cmap = DIVERGING if isinstance(norm, TwoSlopeNorm) else SEQUENTIAL
    values = matrix.to_numpy(dtype=np.float64)
    # Cells of a large matrix are smaller than a pixel; "none" would drop some of them.
    drawn = axes.imshow(values, cmap=cmap, norm=norm, aspect="auto", interpolation="nearest")
    step = max(1, len(matrix.columns) // 8) if is_integer_dtype(matrix.columns) else 1
    # Names come from data, where a dollar sign is no mathematics.
    axes.set_xticks(range(0, matrix.shape[1], step), [str(name) for name in matrix.columns[::step]],
                    fontsize=fontsize, rotation=rotation, parse_math=False)
    axes.set_yticks(range(matrix.shape[0]), [str(name) for name in matrix.index],
                    fontsize=fontsize, parse_math=False)
    for (row, column), value in np.ndenumerate(values) if numbers else ():
        if np.isfinite(value):
            brightness = np.dot(drawn.cmap(norm(value))[:3], BRIGHTNESS)
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=fontsize,
                      color="black" if brightness > 0.5 else "white")
    return drawn


def signed_norm(values: np.ndarray) -> Normalize:
    """Return a scale that is symmetric about 0, or from 0 up where nothing is negative."""
    most = float(np.abs(values).max()) or 1.0
    return TwoSlopeNorm(0.0, -most, most) if values.min() < 0 else Normalize(0.0, most)


def _short(name: object) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 1]}…"


BAR, LINE = 0.8, 0.155
"""Inches that a colour bar is wide, and a line of a legend high."""
Categories = Mapping[object, tuple[str, str]]
"""Category -> colour, marker."""


@dataclass(frozen=True)
class ScatterCell:
    """One panel of a scatter figure.

    row, column  names of its place; order of first appearance
    coordinates  float [N, 2]
    values       the label [N] that colours the points; its name heads the legend
    note         what stands below the panel, such as how far to trust it
    """

    row: str
    column: str
    coordinates: np.ndarray
    values: pd.Series
    note: str = ""

    @property
    def label(self) -> str:
        """Name of the label."""
        return str(self.values.name)


def scatter_figure(
    cells: Sequence[ScatterCell],
    *,
    continuous: Collection[str] = (),
    panel_inches: float = 2.1,
) -> Figure:
    """Return panels of points, rows = models, columns = layers or labels, say.

    A label of floating-point numbers, or one that `continuous` names, gets a colour bar; any
    other a legend of categories (colours, then marker shapes). A label looks the same in all
    panels: one scale, one set of categories. Keys stand to the right.

    `ProbeError` for more than 48 categories, for values that are not finite, for two cells in
    one place, and where a row mixes labels.
    """
    rows = list(dict.fromkeys(cell.row for cell in cells))
    columns = list(dict.fromkeys(cell.column for cell in cells))
    at = {(rows.index(cell.row), columns.index(cell.column)): cell for cell in cells}
    check(len(at) == len(cells), "two panels have the same row and column", ProbeError)
    of_row = [{cell.label for (r, _), cell in at.items() if r == i} for i in range(len(rows))]
    check(all(len(used) == 1 for used in of_row), "a row of panels mixes labels; expected one "
          "label in each row, whose key stands beside it", ProbeError)
    looks = {label: _look(label, pd.concat([cell.values for cell in cells if cell.label == label],
                                           ignore_index=True), label in continuous)
             for label in dict.fromkeys(cell.label for cell in cells)}
    room = max(BAR if isinstance(look, Normalize) else _legend_inches(label, look, panel_inches)
               for label, look in looks.items())
    widths = [*[panel_inches] * len(columns), room]
    heights = [panel_inches] * len(rows)
    with style():
        figure = Figure(figsize=(sum(widths) + 0.3, sum(heights) + 0.3), layout="constrained")
        grid = figure.add_gridspec(len(heights), len(widths), width_ratios=widths,
                                   height_ratios=heights)
        for (row, column), cell in at.items():
            axes = figure.add_subplot(grid[row, column])
            _draw_points(axes, cell, looks[cell.label])
            axes.set(xticks=[], yticks=[], box_aspect=1.0)
            axes.spines[:].set_visible(True)
            axes.spines[:].set_color("#BBBBBB")
            axes.set_xlabel(cell.note, fontsize=7)
            if row == min(r for r, c in at if c == column):
                axes.set_title(cell.column)
            if column == min(c for r, c in at if r == row):
                axes.set_ylabel(cell.row)
        for i, (label,) in enumerate(of_row):
            if i == 0 or of_row[i - 1] != {label}:
                axes = figure.add_subplot(grid[i, -1])
                axes.set_axis_off()
                _draw_key(axes, label, looks[label], panel_inches, room)
    return figure


def _look(label: str, values: pd.Series, continuous: bool) -> Normalize | Categories:
    """Return how a label is drawn, from its values in all panels."""
    if not continuous and not pd.api.types.is_float_dtype(values):
        return category_styles(sorted(values.unique(), key=lambda v: (str(type(v)), v)))
    numbers = values.to_numpy(dtype=np.float64)
    bad = int((~np.isfinite(numbers)).sum())
    check(bad == 0, f"label {label!r} has {bad} values that are not finite", ProbeError)
    return Normalize(float(numbers.min()), float(numbers.max()))


def _draw_points(axes: Axes, cell: ScatterCell, look: Normalize | Categories) -> None:
    # An area in square points at which the points of a panel remain distinct.
    size = float(np.clip(6000.0 / max(len(cell.values), 1), 1.5, 18.0))
    if isinstance(look, Normalize):
        axes.scatter(cell.coordinates[:, 0], cell.coordinates[:, 1],
                     c=cell.values.to_numpy(dtype=np.float64), norm=look, cmap=SEQUENTIAL,
                     s=size, linewidths=0)
        return
    colors, markers = (np.array(styles) for styles in zip(
        *(look[value] for value in cell.values), strict=True))
    # In random order, or the last category would cover the others where they mix.
    order = np.random.default_rng(0).permutation(len(cell.values))
    for marker in np.unique(markers):
        mine = order[markers[order] == marker]
        axes.scatter(cell.coordinates[mine, 0], cell.coordinates[mine, 1], c=colors[mine],
                     marker=marker, s=size, linewidths=0)


def _draw_key(
    axes: Axes, label: str, look: Normalize | Categories, panel: float, room: float
) -> None:
    if isinstance(look, Normalize):
        inset = axes.inset_axes((0.0, 0.1, 0.13 / room, 0.8))
        inset.set_in_layout(False)
        bar = axes.figure.colorbar(ScalarMappable(look, SEQUENTIAL), cax=inset)
        bar.set_label(label)
        bar.locator = MaxNLocator(4)
        bar.update_ticks()
        return
    handles = [Line2D([], [], color=color, marker=marker, linestyle="", markersize=4.5,
                      label=str(category)) for category, (color, marker) in look.items()]
    legend = axes.legend(
        handles=handles, title=label, ncols=_legend_columns(look, panel), borderaxespad=0.0,
        loc="upper left", fontsize=8, title_fontsize=9, handletextpad=0.2, columnspacing=0.8,
        labelspacing=0.3)
    legend.set_in_layout(False)


def _legend_columns(look: Categories, height: float) -> int:
    return int(np.ceil(len(look) * LINE / (height - 0.3)))


def _legend_inches(label: str, look: Categories, height: float) -> float:
    entry = 0.35 + 0.075 * max(len(str(category)) for category in look)
    return float(max(entry * _legend_columns(look, height), 0.09 * len(label)))


TRAINING_LOSS, LOSS = "training_loss", "loss"


def metrics_figure(table: pd.DataFrame) -> Figure:
    """Return the metrics of a run over its steps: a panel per metric, a line per split.

    table  columns step, split, metric, mean, se; bands are +- 2 standard errors

    Metrics of single constituents are left out.

    The loss has a logarithmic axis where it is positive, with the training loss in grey; other
    metrics are shown from 0 to 1, where an untrained model may lie outside.
    """
    metrics = [str(name) for name in table["metric"].unique()
               if name != TRAINING_LOSS and not is_by_constituent(name)]
    metrics = metrics or [TRAINING_LOSS]
    splits = list(table.loc[table["metric"] != TRAINING_LOSS, "split"].unique())
    with style():
        figure = Figure(figsize=(2.3 * len(metrics) + 1.0, 2.3), layout="constrained")
        panels = figure.subplots(1, len(metrics), squeeze=False)[0]
        for axes, metric in zip(panels, metrics, strict=True):
            if metric in (LOSS, TRAINING_LOSS):
                training = table[table["metric"] == TRAINING_LOSS]
                axes.plot(training["step"], training["mean"], color=GREY, linewidth=0.8,
                          label="training")
                if (table.loc[table["metric"].isin([LOSS, TRAINING_LOSS]), "mean"] > 0).all():
                    axes.set_yscale("log")
                    axes.yaxis.set_major_formatter(LogFormatter())
                    axes.yaxis.set_minor_formatter(LogFormatter())
            else:
                axes.set_ylim(-0.03, 1.03)
            for color, split in zip(cycle(PALETTE), splits, strict=False):
                rows = table[(table["metric"] == metric) & (table["split"] == split)]
                axes.plot(rows["step"], rows["mean"], color=color, marker="o", markersize=2.5,
                          label=split)
                axes.fill_between(rows["step"], rows["mean"] - 2 * rows["se"],
                                  rows["mean"] + 2 * rows["se"], color=color, alpha=0.2,
                                  linewidth=0)
            axes.set_title(metric.replace("_", " "), parse_math=False)
            axes.set_xlabel("step")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure
