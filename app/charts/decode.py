"""The chart of decoding: the scores of probes per layer, beside their controls."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from latentcode.app.charts.theme import panel_grid, styled_grid
from latentcode.app.words import shortened
from latentcode.figures.style import FEATURE_STYLES, GREY

SPREAD = 0.09
"""How far features of a layer stand apart, in layers, so that their intervals do not overlap."""

_SYMBOLS = {"code": "circle", "residual": "square", "untrained": "triangle-up", "shuffled": "x"}


def decoding_chart(table: pd.DataFrame, *, dark: bool) -> go.Figure:
    """Which labels can be read out of which layer, beside all controls?

    table  rows of `DecodingResult.table` of one pair; a panel per label and metric
    """
    panels = list(table[["label", "metric"]].drop_duplicates().itertuples(index=False))
    figure, places = panel_grid([_title(label, metric, table) for label, metric in panels])
    feature_sets = [s for s in FEATURE_STYLES if s in set(table["features"])]
    layers = sorted(table["layer"].unique())
    for i, ((label, metric), place) in enumerate(zip(panels, places, strict=True)):
        block = table[(table["label"] == label) & (table["metric"] == metric)]
        for number, features in enumerate(feature_sets):
            rows_of = block[block["features"] == features].sort_values("layer")
            shift = SPREAD * (number - (len(feature_sets) - 1) / 2)
            figure.add_scatter(
                x=[layers.index(layer) + shift for layer in rows_of["layer"]], y=rows_of["value"],
                mode="lines+markers", name=FEATURE_STYLES[features][2], legendgroup=features,
                showlegend=i == 0, marker={"size": 8, "symbol": _SYMBOLS[features],
                                           "color": FEATURE_STYLES[features][0]},
                line={"width": 1.5, "color": FEATURE_STYLES[features][0]},
                customdata=rows_of[["layer", "low", "high", "n_heldout", "n_heldout_combinations"]],
                error_y={"array": rows_of["high"] - rows_of["value"], "thickness": 1.2, "width": 3,
                         "arrayminus": rows_of["value"] - rows_of["low"], "symmetric": False},
                hovertemplate=f"{FEATURE_STYLES[features][2]}, layer %{{customdata[0]}}<br>"
                              "%{y:.3f} [%{customdata[1]:.3f}, %{customdata[2]:.3f}]<br>"
                              "%{customdata[3]:,} instances of %{customdata[4]} combinations"
                              "<extra></extra>", **place)
        # After the points: plotly draws no line in an empty panel.
        figure.add_hline(y=float(block["chance"].iloc[0]),
                         line={"color": GREY, "dash": "dash", "width": 1}, **place)
    figure.update_xaxes(title="layer", tickvals=list(range(len(layers))),
                        ticktext=[str(layer) for layer in layers], showgrid=False, zeroline=False,
                        range=[-0.4, len(layers) - 0.6])
    figure.update_yaxes(range=[-0.02, 1.05], tickformat=".1f", zeroline=False)
    return styled_grid(figure, places, dark=dark)


def _title(label: str, metric: str, table: pd.DataFrame) -> str:
    """Return what a panel shows, and below it where chance is, which no point then hides."""
    chance = table.loc[(table["label"] == label) & (table["metric"] == metric), "chance"].iloc[0]
    return f"{shortened(label)}<br>{metric.replace('_', ' ')}, chance {chance:.2f}"


__all__ = ["decoding_chart"]
