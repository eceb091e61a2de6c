"""Points in the plane: one panel or small multiples, up to 100,000 points each, in WebGL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from latentcode.app.charts.theme import category_marks, styled
from latentcode.app.data.projections import is_measurement
from latentcode.figures.style import SEQUENTIAL

DETAILED = 20_000
"""Up to this many points, each takes its labels to the browser, which shows them under the mouse;
beyond that, only its instance's number and its colour."""
HOVER_LABELS = 6


def scatter(
    panels: Mapping[str, np.ndarray],
    colour: pd.Series,
    labels: pd.DataFrame,
    *,
    dark: bool,
    columns: int = 1,
    height: int = 620,
    instance: int | None = None,
    selected: np.ndarray | None = None,
) -> go.Figure:
    """Return N instances in every panel, in one colour per value of a label.

    panels    title -> float [N, 2], of the same N instances; one alone is shown without its title
    colour    [N], its name is the title of the legend
    labels    [N] rows, the first columns of which the mouse shows
    instance  gets a ring in every panel
    selected  bool [N]; the others are faint

    `customdata` of every point is the number of its instance.
    """
    rows = math.ceil(len(panels) / columns)
    gap = 0.04 if len(panels) > 1 else 0.0
    figure = make_subplots(
        rows, columns, horizontal_spacing=gap, vertical_spacing=gap * 1.6,
        subplot_titles=list(panels) if len(panels) > 1 else None)
    hover = _hover(colour, labels)
    size = point_size(len(colour)) * (1.0 if len(panels) == 1 else 0.8)
    for number, coordinates in enumerate(panels.values()):
        place = {"row": number // columns + 1, "col": number % columns + 1}
        for trace in _traces(coordinates, colour, hover, dark, size, selected, first=number == 0):
            figure.add_trace(trace, **place)
        if instance is not None:
            x, y = coordinates[instance]
            figure.add_trace(_ring(x, y, dark), **place)
    figure.update_xaxes(showticklabels=False, showgrid=False, zeroline=False, showline=False)
    figure.update_yaxes(showticklabels=False, showgrid=False, zeroline=False, showline=False)
    if is_measurement(colour):
        figure.update_layout(coloraxis={
            "colorscale": SEQUENTIAL, "colorbar": {
                "title": {"text": str(colour.name)}, "thickness": 12, "outlinewidth": 0}})
    return styled(figure, height=height, dark=dark, uirevision="kept",
                  legend={"title": {"text": str(colour.name)}})


def point_size(n: int) -> float:
    """Return a diameter in pixels at which n points remain distinct."""
    return float(np.clip(260.0 / math.sqrt(max(n, 1)), 2.5, 8.0))


def in_order(colour: pd.Series) -> list[object]:
    """Return the values of a category in the order of the library's figures."""
    return sorted(colour.unique(), key=lambda v: (str(type(v)), v))


def _traces(
    coordinates: np.ndarray, colour: pd.Series, hover: _Hover, dark: bool, size: float,
    selected: np.ndarray | None, *, first: bool,
) -> list[go.Scattergl]:
    """Return one trace of measurements, or one per category, so that its legend can hide it."""
    values = colour.to_numpy()
    measured = is_measurement(colour)
    if measured:
        groups = [(str(colour.name), np.arange(len(values)),
                   {"color": values.astype(np.float32), "coloraxis": "coloraxis"})]
    else:
        marks = category_marks(in_order(colour), dark)
        groups = [(str(value), np.flatnonzero(values == value),
                   {"color": mark[0], "symbol": mark[1]}) for value, mark in marks.items()]
    return [
        go.Scattergl(
            x=coordinates[rows, 0].astype(np.float32),
            y=coordinates[rows, 1].astype(np.float32), mode="markers", name=name,
            legendgroup=name, showlegend=first and not measured,
            marker={"size": size, "opacity": 0.85, "line": {"width": 0}, **marker},
            customdata=hover.instance[rows, None],
            hovertext=None if hover.text is None else hover.text[rows],
            hovertemplate=f"{hover.template}<extra>{'' if measured else name}</extra>",
            selectedpoints=None if selected is None else np.flatnonzero(selected[rows]),
            selected={"marker": {"opacity": 0.95}},
            unselected={"marker": {"opacity": 0.16 if dark else 0.1}})
        for name, rows, marker in groups]


def _ring(x: float, y: float, dark: bool) -> go.Scattergl:
    """Return the mark of the instance that is looked at."""
    return go.Scattergl(
        x=[x], y=[y], mode="markers", hoverinfo="skip", showlegend=False, name="instance",
        marker={"size": 17, "color": "rgba(0,0,0,0)",
                "line": {"width": 2.5, "color": "#FFFFFF" if dark else "#111111"}},
        # A selection does not make it faint.
        selected={"marker": {"opacity": 1.0}}, unselected={"marker": {"opacity": 1.0}})


@dataclass(frozen=True)
class _Hover:
    """What the mouse shows: number of the instance, its text if it has one, and their template."""

    instance: np.ndarray
    text: np.ndarray | None
    template: str


def _hover(colour: pd.Series, labels: pd.DataFrame) -> _Hover:
    instance = np.arange(len(colour), dtype=np.int32)
    if len(colour) > DETAILED:
        return _Hover(instance, None, "instance %{customdata[0]}")
    # The name of a category is shown anyway.
    columns = {str(colour.name): colour.to_numpy()} if is_measurement(colour) else {}
    for name in labels.columns:
        if len(columns) < HOVER_LABELS and name not in columns:
            columns[str(name)] = labels[name].to_numpy()
    # One text per point: a table of many values costs a second on each way to the browser.
    lines = [[f"{name}: {value:.3f}" if values.dtype.kind == "f" else f"{name}: {value}"
              for value in values.tolist()] for name, values in columns.items()]
    text = np.array(["<br>".join(row) for row in zip(*lines, strict=True)], dtype=object)
    return _Hover(instance, text, "instance %{customdata[0]}<br>%{hovertext}")


__all__ = ["in_order", "point_size", "scatter"]
