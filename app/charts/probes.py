"""Charts of probe results: scores beside their controls, cosines of labels, training curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from latentcode.app.charts.theme import palette, styled
from latentcode.figures.style import GREY, SOURCE_STYLES

ACROSS = 3
"""Panels beside each other."""
PANEL = 300
"""Height of a panel in pixels."""
SPREAD = 0.09
"""By how much of a layer the sources stand beside each other, so that intervals do not cover."""
MATRIX = 480
"""Height of the cosine matrix and of what stands beside it."""
LONGEST = 22
"""Letters of a value that an axis shows."""

_SYMBOLS = {"code": "circle", "residual": "square", "untrained": "triangle-up", "shuffled": "x"}
_LOSSES = ("loss", "training_loss")


def decoding_chart(table: pd.DataFrame, *, dark: bool) -> go.Figure:
    """Which labels can be read out of which layer, beside all controls?

    table  rows of `DecodingResult.table` of one pair; a panel per label and metric
    """
    panels = list(table[["label", "metric"]].drop_duplicates().itertuples(index=False))
    across = min(ACROSS, len(panels))
    rows = -(-len(panels) // across)
    figure = make_subplots(
        rows, across, horizontal_spacing=0.06, vertical_spacing=0.2 / rows,
        subplot_titles=[f"{label}: {metric.replace('_', ' ')}" for label, metric in panels])
    sources = [s for s in SOURCE_STYLES if s in set(table["source"])]
    layers = sorted(table["layer"].unique())
    for i, (label, metric) in enumerate(panels):
        block = table[(table["label"] == label) & (table["metric"] == metric)]
        place = {"row": i // across + 1, "col": i % across + 1}
        for number, source in enumerate(sources):
            rows_of = block[block["source"] == source].sort_values("layer")
            shift = SPREAD * (number - (len(sources) - 1) / 2)
            figure.add_scatter(
                x=[layers.index(layer) + shift for layer in rows_of["layer"]], y=rows_of["value"],
                mode="lines+markers", name=SOURCE_STYLES[source][2], legendgroup=source,
                showlegend=i == 0, marker={"size": 8, "symbol": _SYMBOLS[source],
                                           "color": SOURCE_STYLES[source][0]},
                line={"width": 1.5, "color": SOURCE_STYLES[source][0]},
                customdata=rows_of[["layer", "low", "high", "n_heldout", "n_heldout_combinations"]],
                error_y={"array": rows_of["high"] - rows_of["value"], "thickness": 1.2, "width": 3,
                         "arrayminus": rows_of["value"] - rows_of["low"], "symmetric": False},
                hovertemplate=f"{SOURCE_STYLES[source][2]}, layer %{{customdata[0]}}<br>"
                              "%{y:.3f} [%{customdata[1]:.3f}, %{customdata[2]:.3f}]<br>"
                              "%{customdata[3]:,} instances of %{customdata[4]} combinations"
                              "<extra></extra>", **place)
        # Lines are not drawn in panels that hold nothing yet.
        chance = float(block["chance"].iloc[0])
        figure.add_hline(y=chance, line={"color": GREY, "dash": "dash", "width": 1},
                         annotation={"text": f"chance {chance:.2f}", "font": {"size": 11},
                                     "xanchor": "right", "yanchor": "bottom"}, **place)
    styled(figure, height=PANEL * rows + 60, dark=dark)
    figure.update_xaxes(title="layer", tickvals=list(range(len(layers))),
                        ticktext=[str(layer) for layer in layers], showgrid=False, zeroline=False,
                        range=[-0.4, len(layers) - 0.6])
    figure.update_yaxes(range=[-0.02, 1.05], tickformat=".1f", zeroline=False)
    figure.update_layout(dragmode="zoom", margin_t=70, legend={
        "orientation": "h", "x": 0, "y": 1.0, "yref": "container", "yanchor": "top"})
    return figure


def cosine_chart(
    cosines: np.ndarray, names: Sequence[str], *, title: str, chosen: tuple[int, int] | None,
    signed: bool, dark: bool,
) -> go.Figure:
    """Which values of a label have similar mean codes? A click chooses a cell.

    cosines  [n, n]; the first entry of `customdata` of a cell is row * n + column
    chosen   row and column of the cell that is framed
    signed   whether colours are centred on 0
    """
    n = len(names)
    row, column = (i.ravel() for i in np.indices((n, n)))
    values = cosines.ravel()
    paper = "#1B222B" if dark else "#F4F6F8"
    finite = values[np.isfinite(values)]
    scale: dict[str, Any] = {
        "zmin": -1.0, "zmax": 1.0,
        "colorscale": [[0.0, "#0072B2"], [0.5, paper], [1.0, "#D55E00"]]} if signed else {
        "zmin": float(finite.min()) if len(finite) else 0.0, "zmax": 1.0,
        "colorscale": [[0.0, paper], [1.0, "#0072B2"]]}
    figure = go.Figure(go.Heatmap(
        z=cosines, xgap=1, ygap=1, hoverinfo="skip", hoverongaps=False,
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 0.6, "y": 1.0, "yanchor": "top"},
        **scale))
    # A heat map itself cannot be clicked: invisible points on its cells can.
    figure.add_scatter(
        x=column, y=row, mode="markers", showlegend=False,
        marker={"size": max(6.0, 0.6 * MATRIX / n), "symbol": "square", "opacity": 0.0},
        selected={"marker": {"opacity": 0.0}}, unselected={"marker": {"opacity": 0.0}},
        customdata=np.column_stack([np.arange(n * n), values]),
        text=[f"{one} and {other}" for one in names for other in names],
        hovertemplate="%{text}: %{customdata[1]:.2f}<extra></extra>")
    styled(figure, height=MATRIX, dark=dark, legend=False)
    ticks = {"tickvals": list(range(n)), "ticktext": [_short(name) for name in names],
             "showgrid": False, "zeroline": False, "range": [-0.5, n - 0.5]}
    figure.update_xaxes(**ticks, tickangle=-45, ticks="")
    figure.update_yaxes(**ticks, ticks="")
    figure.update_yaxes(range=[n - 0.5, -0.5], title=title, scaleanchor="x", constrain="domain",
                        constraintoward="top")
    figure.update_xaxes(constrain="domain", constraintoward="left")
    if chosen is not None:
        i, j = chosen
        figure.add_shape(type="rect", x0=j - 0.5, x1=j + 0.5, y0=i - 0.5, y1=i + 0.5,
                         line={"width": 2.5, "color": "#FFFFFF" if dark else "#111111"})
    figure.update_layout(clickmode="event+select", dragmode=False)
    return figure


def two_codes_chart(one: np.ndarray, other: np.ndarray, names: tuple[str, str], *,
                    dark: bool) -> go.Figure:
    """Two mean codes [H] as bars over the heads, and their difference below."""
    figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.12, row_heights=[0.6, 0.4],
                           subplot_titles=("mean codes", f"{_short(names[0])} less "
                                           f"{_short(names[1])}"))
    colors = palette(dark)
    heads = np.arange(len(one))
    for code, name, color in zip((one, other), names, colors[:2], strict=True):
        figure.add_bar(x=heads, y=code, name=name, marker_color=color, row=1, col=1)
    figure.add_bar(x=heads, y=one - other, showlegend=False, row=2, col=1,
                   marker_color=[colors[0] if d > 0 else colors[1] for d in one - other])
    styled(figure, height=MATRIX - 60, dark=dark)
    figure.update_xaxes(title="head", dtick=1 if len(heads) <= 16 else None, row=2, col=1)
    figure.update_xaxes(showgrid=False, zeroline=False)
    figure.update_yaxes(title="score", row=1, col=1)
    figure.update_layout(bargap=0.25, dragmode="zoom", margin_t=56, legend={
        "orientation": "h", "x": 0, "y": 1.0, "yref": "container", "yanchor": "top"})
    return figure


def training_chart(metrics: pd.DataFrame, *, log_steps: bool, dark: bool) -> go.Figure:
    """How did the metrics of each split change over the steps?

    metrics  rows of `Run.metrics`; a panel per metric in their order, bands of +- 2 standard
             errors, the training loss with the loss
    """
    names = [str(m) for m in metrics["metric"].unique() if m != "training_loss"]
    names = names or ["training_loss"]
    splits = list(dict.fromkeys(metrics.loc[metrics["metric"] != "training_loss", "split"]))
    across = min(ACROSS, len(names))
    rows = -(-len(names) // across)
    figure = make_subplots(rows, across, horizontal_spacing=0.06, vertical_spacing=0.22 / rows,
                           subplot_titles=[name.replace("_", " ") for name in names])
    for i, name in enumerate(names):
        place = {"row": i // across + 1, "col": i % across + 1}
        loss = name in _LOSSES
        if loss:
            training = metrics[metrics["metric"] == "training_loss"]
            figure.add_scatter(x=training["step"], y=training["mean"], mode="lines",
                               name="training batches", line={"width": 1, "color": GREY}, **place)
        for split, color in zip(splits, palette(dark), strict=False):
            block = metrics[(metrics["metric"] == name) & (metrics["split"] == split)]
            figure.add_scatter(
                x=block["step"], y=block["mean"], mode="lines+markers", name=split,
                legendgroup=split, showlegend=i == 0, marker={"size": 5},
                line={"width": 1.8, "color": color}, error_y={
                    "array": 2 * block["se"], "thickness": 1, "width": 0},
                hovertemplate=f"{split}, step %{{x:,}}<br>%{{y:.4f}}<extra></extra>", **place)
        positive = bool((metrics.loc[metrics["metric"].isin([name, "training_loss"]),
                                     "mean"] > 0).all())
        if not loss:
            figure.update_yaxes(range=[-0.03, 1.03], **place)
        elif positive:
            figure.update_yaxes(type="log", dtick="D2", **place)
    styled(figure, height=PANEL * rows + 60, dark=dark)
    figure.update_xaxes(title="step", zeroline=False, type="log" if log_steps else "linear")
    figure.update_layout(dragmode="zoom", margin_t=70, legend={
        "orientation": "h", "x": 0, "y": 1.0, "yref": "container", "yanchor": "top"})
    return figure


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[:LONGEST - 1]}…"


__all__ = ["cosine_chart", "decoding_chart", "training_chart", "two_codes_chart"]
