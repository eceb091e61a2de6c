"""The chart of training: the metrics of every split over the steps."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from latentcode.app.charts.theme import palette, panel_grid, styled_grid
from latentcode.figures.style import GREY

_LOSSES = ("loss", "training_loss")


def training_chart(metrics: pd.DataFrame, *, log_steps: bool, dark: bool) -> go.Figure:
    """How did the metrics of each split change over the steps?

    metrics  rows of `Run.metrics`; a panel per metric in their order, bands of +- 2 standard
             errors, the training loss with the loss
    """
    names = [str(m) for m in metrics["metric"].unique() if m != "training_loss"]
    names = names or ["training_loss"]
    splits = list(dict.fromkeys(metrics.loc[metrics["metric"] != "training_loss", "split"]))
    figure, places = panel_grid([name.replace("_", " ") for name in names])
    for i, (name, place) in enumerate(zip(names, places, strict=True)):
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
    figure.update_xaxes(title="step", zeroline=False, type="log" if log_steps else "linear")
    return styled_grid(figure, places, dark=dark)


__all__ = ["training_chart"]
