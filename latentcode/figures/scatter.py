"""Panels of points in a plane, coloured by a label."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from latentcode.errors import ProbeError, check
from latentcode.figures.style import SEQUENTIAL, Figure, category_styles, style

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

    def __post_init__(self) -> None:
        check(self.coordinates.shape == (len(self.values), 2),
              f"coordinates have shape {self.coordinates.shape}; expected "
              f"({len(self.values)}, 2), a point per value of {self.values.name!r}", ProbeError)

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
    check(len(cells) > 0, "there are no panels to draw", ProbeError)
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
