"""The chart of decoding: the scores of probes per layer, beside their controls."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from latentcode.app.charts.theme import panel_grid, styled_grid
from latentcode.app.words import shortened
from latentcode.figures.colours import FEATURE_STYLES, GREY

SPREAD = 0.09
"""How far features of a layer stand apart, in layers, so that their intervals do not overlap."""

_SYMBOLS = {"code": "circle", "residual": "square", "untrained": "triangle-up", "shuffled": "x",
            "bag": "triangle-down", "chance": "diamond"}
_CHANCE = ("#56B4E9", "D", "best constant answer")


def decoding_chart(table: pd.DataFrame, *, dark: bool) -> go.Figure:
    """Which labels can be decoded from which layer, beside all controls?

    table  rows of `DecodingResult.table` of one pair; a panel per label and metric
    """
    figure = _drawn(table, dark=dark)
    return figure.update_yaxes(range=[-0.02, 1.05], tickformat=".1f", zeroline=False)


def contrasts_chart(table: pd.DataFrame, *, dark: bool) -> go.Figure:
    """By how much is the code above each control, with intervals, layer by layer?

    table  rows of `DecodingResult.contrasts` of one pair; a panel per label and metric
    """
    as_scores = table[table["against"].isin(list(_SYMBOLS))].drop(columns="features").rename(
        columns={"quantity": "metric", "against": "features", "n": "n_heldout",
                 "n_clusters": "n_heldout_combinations"})
    figure = _drawn(as_scores.assign(chance=0.0), dark=dark, said="less ")
    return figure.update_yaxes(tickformat=".1f", zeroline=False)


def _drawn(table: pd.DataFrame, *, dark: bool, said: str = "") -> go.Figure:
    """Return a panel per label and metric, a trace per features, dashed what chance is.

    said  what stands before the names of features
    """
    panels = list(table[["label", "metric"]].drop_duplicates().itertuples(index=False))
    figure, places = panel_grid([_title(label, metric, table, bool(said))
                                 for label, metric in panels])
    styles = FEATURE_STYLES | {"chance": _CHANCE}
    feature_sets = [s for s in styles if s in set(table["features"])]
    layers = sorted(table["layer"].unique())
    for i, ((label, metric), place) in enumerate(zip(panels, places, strict=True)):
        block = table[(table["label"] == label) & (table["metric"] == metric)]
        for number, features in enumerate(feature_sets):
            color, _, words = styles[features]
            rows_of = block[block["features"] == features].sort_values("layer")
            shift = SPREAD * (number - (len(feature_sets) - 1) / 2)
            figure.add_scatter(
                x=[layers.index(layer) + shift for layer in rows_of["layer"]], y=rows_of["value"],
                mode="markers" if said else "lines+markers", name=f"{said}{words}",
                legendgroup=features, showlegend=i == 0,
                marker={"size": 8, "symbol": _SYMBOLS[features], "color": color},
                line={"width": 1.5, "color": color},
                customdata=rows_of[["layer", "low", "high", "n_heldout", "n_heldout_combinations"]],
                error_y={"array": rows_of["high"] - rows_of["value"], "thickness": 1.2, "width": 3,
                         "arrayminus": rows_of["value"] - rows_of["low"], "symmetric": False},
                hovertemplate=f"{said}{words}, layer %{{customdata[0]}}<br>"
                              "%{y:.3f} [%{customdata[1]:.3f}, %{customdata[2]:.3f}]<br>"
                              "%{customdata[3]:,} instances of %{customdata[4]} combinations"
                              "<extra></extra>", **place)
        # After the points: plotly draws no line in an empty panel.
        figure.add_hline(y=float(block["chance"].iloc[0]),
                         line={"color": GREY, "dash": "dash", "width": 1}, **place)
    figure.update_xaxes(title="layer", tickvals=list(range(len(layers))),
                        ticktext=[str(layer) for layer in layers], showgrid=False, zeroline=False,
                        range=[-0.4, len(layers) - 0.6])
    return styled_grid(figure, places, dark=dark)


def _title(label: str, metric: str, table: pd.DataFrame, of_differences: bool) -> str:
    """Return what a panel shows, and below it where chance is, which no point then hides."""
    what = f"{shortened(label)}<br>{metric.replace('_', ' ')}"
    if of_differences:
        return what
    chance = table.loc[(table["label"] == label) & (table["metric"] == metric), "chance"].iloc[0]
    return f"{what}, chance {chance:.2f}"
