"""Panels of points in a plane, coloured by a label."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    keys = _keys(cells, continuous)
    at = {(rows.index(cell.row), columns.index(cell.column)): cell for cell in cells}
    check(len(at) == len(cells), "two panels have the same row and column", ProbeError)
    of_row = [{cell.label for (r, _), cell in at.items() if r == i} for i in range(len(rows))]
    check(all(len(used) == 1 for used in of_row), "a row of panels mixes labels; expected one "
          "label in each row, whose key stands beside it", ProbeError)

    room = max(key.width(panel_inches) for key in keys.values())
    widths = [*[panel_inches] * len(columns), room]
    heights = [panel_inches] * len(rows)
    with style():
        figure = Figure(figsize=(sum(widths) + 0.3, sum(heights) + 0.3), layout="constrained")
        grid = figure.add_gridspec(len(heights), len(widths), width_ratios=widths,
                                   height_ratios=heights)
        for (row, column), cell in at.items():
            axes = figure.add_subplot(grid[row, column])
            keys[cell.label].draw_points(axes, cell)
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
                key_axes = figure.add_subplot(grid[i, -1])
                key_axes.set_axis_off()
                keys[label].draw_key(key_axes, panel_inches, room)
    return figure


class _Categories:
    """Points in categorical colours, and their legend; sizes in inches."""

    LINE = 0.155

    def __init__(self, name: str, values: pd.Series) -> None:
        self.name = name
        self.styles = category_styles(sorted(values.unique(), key=lambda v: (str(type(v)), v)))
        self.entry_inches = 0.35 + 0.075 * max(len(str(c)) for c in self.styles)

    def width(self, height: float) -> float:
        return float(max(self.entry_inches * self._columns(height), 0.09 * len(self.name)))

    def _columns(self, height: float) -> int:
        return int(np.ceil(len(self.styles) * self.LINE / (height - 0.3)))

    def draw_points(self, axes: Axes, cell: ScatterCell) -> None:
        values = cell.values.to_numpy()
        colors = np.array([self.styles[v][0] for v in values])
        markers = np.array([self.styles[v][1] for v in values])
        # In random order, or the last category would cover the others where they mix.
        order = np.random.default_rng(0).permutation(len(values))
        for marker in np.unique(markers):
            mine = order[markers[order] == marker]
            axes.scatter(cell.coordinates[mine, 0], cell.coordinates[mine, 1], c=colors[mine],
                         marker=marker, s=_point_size(len(values)), linewidths=0)

    def draw_key(self, axes: Axes, panel: float, room: float) -> None:
        handles = [Line2D([], [], color=color, marker=marker, linestyle="", markersize=4.5,
                          label=str(category)) for category, (color, marker) in self.styles.items()]
        legend = axes.legend(
            handles=handles, title=self.name, ncols=self._columns(panel), borderaxespad=0.0,
            loc="upper left", fontsize=8, title_fontsize=9, handletextpad=0.2, columnspacing=0.8,
            labelspacing=0.3)
        legend.set_in_layout(False)


class _Measurements:
    """Points on a continuous colour scale, and its bar; sizes in inches."""

    THICKNESS = 0.13

    def __init__(self, name: str, values: pd.Series) -> None:
        numbers = values.to_numpy(dtype=np.float64)
        bad = int((~np.isfinite(numbers)).sum())
        check(bad == 0, f"label {name!r} has {bad} values that are not finite", ProbeError)
        self.name, self.scale = name, Normalize(float(numbers.min()), float(numbers.max()))

    def width(self, height: float) -> float:
        return 0.8

    def draw_points(self, axes: Axes, cell: ScatterCell) -> None:
        axes.scatter(cell.coordinates[:, 0], cell.coordinates[:, 1],
                     c=cell.values.to_numpy(dtype=np.float64), norm=self.scale, cmap=SEQUENTIAL,
                     s=_point_size(len(cell.values)), linewidths=0)

    def draw_key(self, axes: Axes, panel: float, room: float) -> None:
        inset = axes.inset_axes((0.0, 0.1, self.THICKNESS / room, 0.8))
        inset.set_in_layout(False)
        bar = axes.figure.colorbar(ScalarMappable(self.scale, SEQUENTIAL), cax=inset)
        bar.set_label(self.name)
        bar.locator = MaxNLocator(4)
        bar.update_ticks()


def _keys(
    cells: Sequence[ScatterCell], continuous: Collection[str]
) -> dict[str, _Categories | _Measurements]:
    """Return how each label is drawn, from its values in all cells."""
    keys: dict[str, _Categories | _Measurements] = {}
    for label in dict.fromkeys(cell.label for cell in cells):
        values = pd.concat([c.values for c in cells if c.label == label], ignore_index=True)
        measured = label in continuous or pd.api.types.is_float_dtype(values)
        keys[label] = (_Measurements if measured else _Categories)(label, values)
    return keys


def _point_size(n: int) -> float:
    """Return an area in square points at which n points of a panel remain distinct."""
    return float(np.clip(6000.0 / max(n, 1), 1.5, 18.0))
