"""The charts of similarity: the cosines of a label's mean codes, and two of these codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from latentcode.app.charts.theme import LEGEND_ABOVE, grey, palette, styled
from latentcode.app.words import shortened

MATRIX = 480
"""Height of the cosine matrix in pixels, and of what stands beside it."""
MOST_NAMES = 28
"""Names that an axis of the matrix has space for; of more, it has every second one or fewer."""


def cosine_chart(
    cosines: np.ndarray, names: Sequence[str], *, cells: Sequence[str],
    chosen: tuple[int, int] | None, signed: bool, dark: bool,
) -> go.Figure:
    """Which values of a label have similar mean codes? A click chooses a cell.

    cosines  [n, n]; those of the diagonal, which are 1, have no colour on the scale
    cells    [n * n], what a click says of a cell, row by row: the first entry of its `customdata`,
             quoted as in a URL
    chosen   row and column of the cell that is framed
    signed   whether colours are centred on 0
    """
    n = len(names)
    row, column = (i.ravel() for i in np.indices((n, n)))
    values = cosines.ravel()
    paper = "#1B222B" if dark else "#F4F6F8"
    own = np.eye(n, dtype=bool)
    apart = np.where(own, np.nan, cosines)
    finite = apart[np.isfinite(apart)]
    scale: dict[str, Any] = {
        "zmin": -1.0, "zmax": 1.0,
        "colorscale": [[0.0, "#0072B2"], [0.5, paper], [1.0, "#D55E00"]]} if signed else {
        "zmin": float(finite.min()) if len(finite) else 0.0,
        "zmax": float(finite.max()) if len(finite) else 1.0,
        "colorscale": [[0.0, paper], [1.0, "#0072B2"]]}
    figure = go.Figure(go.Heatmap(
        z=apart, xgap=1, ygap=1, hoverinfo="skip", hoverongaps=False,
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 0.6, "y": 1.0, "yanchor": "top"},
        **scale))
    figure.add_heatmap(z=np.where(own, 1.0, np.nan), xgap=1, ygap=1, hoverinfo="skip",
                       hoverongaps=False, showscale=False, colorscale=[grey(dark)] * 2)
    # A heat map cannot be clicked, but invisible points on its cells can.
    figure.add_scatter(
        x=column, y=row, mode="markers", showlegend=False,
        marker={"size": max(6.0, 0.6 * MATRIX / n), "symbol": "square", "opacity": 0.0},
        # A label may have any letters, and what looks like a tag is changed on its way.
        customdata=np.column_stack([np.array([quote(cell) for cell in cells], dtype=object),
                                    values]),
        text=[f"{one} and {other}" for one in names for other in names],
        hovertemplate="%{text}: %{customdata[1]:.2f}<extra></extra>")
    told = range(0, n, -(-n // MOST_NAMES))
    ticks = {"tickvals": [*told], "ticktext": [shortened(names[i]) for i in told],
             "tickfont": {"size": 12 if n <= MOST_NAMES // 2 else 9},
             "showgrid": False, "zeroline": False, "range": [-0.5, n - 0.5]}
    figure.update_xaxes(**ticks, tickangle=-45, ticks="")
    figure.update_yaxes(**ticks, ticks="")
    figure.update_yaxes(range=[n - 0.5, -0.5], scaleanchor="x", constrain="domain",
                        constraintoward="top")
    figure.update_xaxes(constrain="domain", constraintoward="left")
    if chosen is not None:
        i, j = chosen
        figure.add_shape(type="rect", x0=j - 0.5, x1=j + 0.5, y0=i - 0.5, y1=i + 0.5,
                         line={"width": 2.5, "color": "#FFFFFF" if dark else "#111111"})
    return styled(figure, height=MATRIX, dark=dark, dragmode=False)


def two_codes_chart(one: np.ndarray, other: np.ndarray, names: tuple[str, str], *,
                    dark: bool) -> go.Figure:
    """Two mean codes [H] as bars over the heads, and their difference below."""
    figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.12, row_heights=[0.6, 0.4],
                           subplot_titles=("mean codes", "the first minus the second"))
    colors = palette(dark)
    heads = np.arange(len(one))
    for code, name, color in zip((one, other), names, colors[:2], strict=True):
        figure.add_bar(x=heads, y=code, name=shortened(name), marker_color=color, row=1, col=1)
    figure.add_bar(x=heads, y=one - other, showlegend=False, row=2, col=1,
                   marker_color=[colors[0] if d > 0 else colors[1] for d in one - other])
    figure.update_xaxes(title="head", dtick=1 if len(heads) <= 16 else None, tickangle=0, row=2,
                        col=1)
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(title="score", row=1, col=1)
    return styled(figure, height=MATRIX - 40, dark=dark, bargap=0.25, dragmode="zoom",
                  margin_t=76, legend=LEGEND_ABOVE)
