"""The chart of training: the metrics of every split over the steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from latentcode.app.charts.theme import palette, panel_grid, styled_grid
from latentcode.figures.colours import GREY
from latentcode.metrics import is_loss

MOST_TICKS = 7
"""Ticks of a logarithmic axis."""


def training_chart(metrics: pd.DataFrame, *, log_steps: bool, dark: bool) -> go.Figure:
    """How did the metrics of each split change over the steps?

    metrics  rows of `Run.metrics`; a panel per metric in their order, bands of +- 2 standard
             errors, the training loss with the loss

    Losses and perplexity have a logarithmic axis, what is at most 1 one from 0 to 1.
    """
    names = [str(m) for m in metrics["metric"].unique() if m != "training_loss"]
    names = names or ["training_loss"]
    splits = list(dict.fromkeys(metrics.loc[metrics["metric"] != "training_loss", "split"]))
    figure, places = panel_grid([name.replace("_", " ") for name in names])
    for i, (name, place) in enumerate(zip(names, places, strict=True)):
        if name in ("loss", "training_loss"):
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
        means = metrics.loc[metrics["metric"].isin(
            [name, *(["training_loss"] if name == "loss" else [])]), "mean"]
        means = means[np.isfinite(means)]
        if is_loss(name):
            if (means > 0).all():
                figure.update_yaxes(type="log", **log_ticks(means), **place)
        elif (means <= 1).all() and (means >= 0).any():
            # A share, or R2, of which what is far below 0 matters little.
            figure.update_yaxes(range=[-0.03, 1.03], **place)
    steps = log_ticks(metrics["step"]) if log_steps else {"nticks": 5, "tickformat": "~s"}
    figure.update_xaxes(title="step", zeroline=False, type="log" if log_steps else "linear",
                        **steps)
    return styled_grid(figure, places, dark=dark)


def log_ticks(values: pd.Series) -> dict[str, Any]:
    """Return the ticks of a logarithmic axis: some six, each a power of ten or 2 or 5 times one.

    Plotly's own are the bare digits 2 and 5 between two powers, or one power and nothing else.
    """
    positive = values[values > 0]
    if len(positive) == 0:
        return {}
    low, high = (math.floor(math.log10(v)) for v in (positive.min(), positive.max()))
    within = [(digit, power) for power in range(low, high + 2) for digit in (1, 2, 5)
              if 0.5 * positive.min() <= digit * 10.0 ** power <= 2.0 * positive.max()]
    if len(within) > MOST_TICKS:
        every = -(-(high - low + 1) // MOST_TICKS)
        within = [(digit, power) for digit, power in within
                  if digit == 1 and (power - low) % every == 0]
    ticks = [digit * 10.0 ** power for digit, power in within]
    return {"tickvals": ticks, "ticktext": [_written(tick) for tick in ticks]}


def _written(tick: float) -> str:
    """Return a number as an axis has it: 0.002, 5, 20,000, and 1e-5 rather than many zeros."""
    if tick >= 1e6 or tick < 1e-3:
        digits, power = f"{tick:.0e}".split("e")
        return f"{digits}e{int(power)}"
    return f"{tick:,.0f}" if tick >= 1 else f"{tick:g}"
