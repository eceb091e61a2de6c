"""The charts of the idea: an attention map, the network a code generates, two outputs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from latentcode.app.charts.theme import grey, styled
from latentcode.app.look import ACCENT
from latentcode.figures.colours import DIVERGING, PALETTE


def outputs(usual: np.ndarray, generated: np.ndarray, *, dark: bool) -> go.Figure:
    """The same output twice, as two strips of colour."""
    figure = go.Figure(go.Heatmap(
        z=np.stack([usual, generated]), y=["head by head", "key by key"], ygap=3,
        **_symmetric(np.abs(usual).max()), showscale=False,
        hovertemplate="%{y}, number %{x}: %{z:.17g}<extra></extra>"))
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(showgrid=False, showticklabels=False, ticks="")
    return styled(figure, height=110, dark=dark, dragmode=False, margin_t=8, margin_b=4)


def attention(
    scores: np.ndarray, names: Sequence[str], query: int, key: int, *, dark: bool
) -> go.Figure:
    """The scores of one head [Q, K] as squares that can be clicked, the chosen one framed."""
    n = len(scores)
    rows, columns = np.divmod(np.arange(n * n), n)
    text = [escape(f"{names[q]} → {names[k]}") for q, k in zip(rows, columns, strict=True)]
    size = max(4.0, 340.0 / n)
    figure = go.Figure(go.Scatter(
        x=columns, y=rows, mode="markers", customdata=np.arange(n * n)[:, None], text=text,
        marker={"symbol": "square", "size": size, "color": scores.ravel(),
                "colorscale": DIVERGING, "cmid": 0.0, "line": {"width": 0}},
        hovertemplate="%{text}<br>score %{marker.color:.3f}<extra></extra>"))
    figure.add_scatter(x=[key], y=[query], mode="markers", hoverinfo="skip", marker={
        "symbol": "square-open", "size": size + 5, "color": PALETTE[1], "line": {"width": 3}})
    figure.update_xaxes(title="key", range=[-0.7, n - 0.3], showgrid=False, zeroline=False)
    figure.update_yaxes(title="query", range=[n - 0.3, -0.7], showgrid=False, zeroline=False)
    return styled(figure, height=430, dark=dark, dragmode=False)


def weights(layers: Sequence[np.ndarray], *, dark: bool) -> go.Figure:
    """The weights of each generated layer [n_in, n_out]; each drawn with its longer side across."""
    drawn = [w.T if w.shape[0] > w.shape[1] else w for w in layers]
    figure = make_subplots(len(drawn), 1, vertical_spacing=0.12, subplot_titles=[
        f"layer {i}: {w.shape[0]} → {w.shape[1]}" for i, w in enumerate(layers, 1)]
        if len(layers) > 1 else None)
    for row, weight in enumerate(drawn, 1):
        figure.add_heatmap(z=weight, **_symmetric(np.abs(weight).max()), showscale=False,
                           hovertemplate="%{z:.3f}<extra></extra>", row=row, col=1)
    figure.update_xaxes(showticklabels=False, showgrid=False, ticks="")
    figure.update_yaxes(showticklabels=False, showgrid=False, ticks="")
    figure.update_annotations(font_size=12)
    return styled(figure, height=300 if len(drawn) == 1 else 110 * len(drawn), dark=dark,
                  dragmode=False, margin_t=22, margin_b=4)


def moved(before: np.ndarray, after: np.ndarray, *, dark: bool) -> go.Figure:
    """What a network makes of a key, before and after its code was changed."""
    figure, changed = go.Figure(), bool((before != after).any())
    figure.add_bar(y=before, marker_color=grey(dark) if changed else ACCENT, width=1.0,
                   hovertemplate="number %{x}: %{y:.3f}<extra>its own code</extra>")
    if changed:
        figure.add_bar(y=after, marker_color=PALETTE[1], width=0.6,
                       hovertemplate="number %{x}: %{y:.3f}<extra>changed</extra>")
    figure.update_xaxes(showticklabels=False, showgrid=False, ticks="")
    return styled(figure, height=150, dark=dark, barmode="overlay", dragmode=False, margin_t=8,
                  margin_b=4, bargap=0.0)


def _symmetric(most: float) -> dict[str, object]:
    """Return a colour scale whose middle is 0."""
    most = float(most) or 1.0
    return {"zmin": -most, "zmax": most, "colorscale": DIVERGING}
