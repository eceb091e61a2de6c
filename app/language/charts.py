"""Charts of heads."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import plotly.graph_objects as go
from matplotlib.colors import to_hex

from latentcode.app.charts.theme import styled
from latentcode.app.language.heads import words

HEIGHT = 430
MAP = "viridis"


def layer_colours(n: int, dark: bool) -> list[str]:
    """Return a colour per layer, from the first to the last, none as dark or light as the ground.
    """
    ends = (0.25, 0.98) if dark else (0.05, 0.92)
    return [to_hex(mpl.colormaps[MAP](share)) for share in np.linspace(*ends, n)]


def heads_chart(
    table: pd.DataFrame, x: str, y: str, chosen: tuple[int, int] | None, *, dark: bool
) -> go.Figure:
    """Return a scatter of heads, coloured by layer; `customdata` is layer.head."""
    figure = go.Figure()
    layers = sorted(table["layer"].unique())
    for layer, colour in zip(layers, layer_colours(len(layers), dark), strict=True):
        rows = table[table["layer"] == layer]
        names = [f"L{layer}H{head}" for head in rows["head"]]
        figure.add_scatter(
            x=rows[x], y=rows[y], mode="markers", name=f"{layer}", text=names,
            customdata=[[f"{layer}.{head}"] for head in rows["head"]],
            hovertemplate=f"%{{text}}<br>{words(x)} %{{x:.3f}}<br>{words(y)} %{{y:.3f}}"
                          "<extra></extra>",
            marker={"size": 9, "color": colour,
                    "line": {"width": 0.6, "color": "#E4E9EE" if dark else "#1B2530"}})
    if chosen is not None:
        row = table[(table["layer"] == chosen[0]) & (table["head"] == chosen[1])].iloc[0]
        figure.add_scatter(
            x=[row[x]], y=[row[y]], mode="markers+text", text=[f"L{chosen[0]}H{chosen[1]}"],
            textposition="top center", hoverinfo="skip", showlegend=False,
            marker={"size": 17, "color": "rgba(0,0,0,0)",
                    "line": {"width": 2.5, "color": "#E4E9EE" if dark else "#1B2530"}})
    styled(figure, height=HEIGHT, dark=dark, hovermode="closest",
           legend={"title": {"text": "layer"}})
    figure.update_xaxes(title=words(x))
    figure.update_yaxes(title=words(y))
    return figure
