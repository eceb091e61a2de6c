"""What selected codes have in common: labels, mean code, and what a probe predicts for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from latentcode.app.charts.map.colours import colours_of_values
from latentcode.app.charts.theme import ACCENT, is_dark, palette, show_still, styled
from latentcode.app.data.projections import in_order, is_measurement, value_name
from latentcode.app.state.sidebar import Chosen
from latentcode.app.words import literal
from latentcode.errors import ProbeError
from latentcode.probes.common.labels import combination_clusters

HEIGHT = 290
BINS = 24
FOLDS = 4
"""Parts of the combinations: for each part, a probe that was fitted to the others predicts."""
PROBED = 2_000
"""Most instances that a probe of the panel is fitted to, so that it takes a second."""
MOST_BARS = 16


def distribution(values: pd.Series, selected: np.ndarray, *, dark: bool) -> go.Figure:
    """Which values of a label does the selection have, compared with all instances?"""
    figure = go.Figure()
    grey = "#4A5562" if dark else "#C4CCD4"
    if is_measurement(values):
        edges = np.linspace(float(values.min()), float(values.max()), BINS + 1)
        middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
        for name, rows, color in (("all", slice(None), grey), ("selection", selected, ACCENT)):
            counts = np.histogram(values[rows], edges)[0]
            figure.add_bar(x=middle, y=counts / max(counts.sum(), 1), width=width, name=name,
                           marker_color=color, opacity=0.75)
        figure.update_layout(barmode="overlay")
    else:
        share = values.value_counts(normalize=True)
        mine = values[selected].value_counts(normalize=True).reindex(share.index, fill_value=0.0)
        largest = set(mine.nlargest(MOST_BARS).index)
        order = [v for v in in_order(values) if v in largest]
        colors = colours_of_values(values, dark=dark)
        names = [value_name(values.name, v) for v in order]
        figure.add_bar(y=names, x=share.reindex(order), orientation="h",
                       name="all", marker_color=grey)
        figure.add_bar(y=names, x=mine.reindex(order), orientation="h",
                       name="selection", marker_color=[colors[v] for v in order])
        figure.update_yaxes(autorange="reversed", type="category")
        figure.update_xaxes(tickformat=".0%")
    bars = 0 if is_measurement(values) else len(figure.data[0].y)
    return styled(figure, height=max(150, 34 + 17 * bars), dark=dark, margin_t=4)


def show_distribution(chosen: Chosen, colour: str, selected: np.ndarray, *, key: str) -> None:
    """Show the chart of `distribution` below its title."""
    st.markdown(f"**{literal(colour)}**, beside all instances (grey)")
    show_still(distribution(chosen.label(colour), selected, dark=is_dark()), key)


def heads(codes: Mapping[str, np.ndarray], *, dark: bool, height: int = HEIGHT) -> go.Figure:
    """The scores of all heads of a few codes, as bars side by side: name -> [H]."""
    figure = go.Figure()
    colors = [ACCENT, palette(dark)[1], "#4A5562" if dark else "#C4CCD4"]
    for (name, code), color in zip(codes.items(), colors, strict=False):
        figure.add_bar(x=np.arange(len(code)), y=np.asarray(code), name=name, marker_color=color)
    figure.update_xaxes(title={"text": "head", "font": {"size": 11}, "standoff": 2},
                        dtick=1 if len(next(iter(codes.values()))) <= 16 else None,
                        tickfont={"size": 10})
    figure.update_yaxes(title={"text": "score", "font": {"size": 11}, "standoff": 2}, nticks=5)
    return styled(figure, height=height, dark=dark, margin_t=24, bargap=0.25,
                  legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0,
                          "font": {"size": 11}})


@dataclass(frozen=True)
class Guesses:
    """What probes predict for every instance, each fitted to other combinations than its own.

    guess    the class of each instance
    classes  all classes, in order
    """

    guess: np.ndarray
    classes: list[object]

    def right(self, values: pd.Series) -> np.ndarray:
        """Return where the guess is right, bool [N]."""
        return np.array(self.classes, dtype=object)[self.guess] == values.to_numpy()


@st.cache_resource(max_entries=24, show_spinner="Fitting a probe …", hash_funcs={
    Chosen: lambda chosen: (*chosen.key, chosen.layer, chosen.pair)})
def guesses(chosen: Chosen, label: str) -> Guesses | None:
    """Fit logistic probes, each to some of the combinations, and let them predict the others.

    None where there is nothing to predict: a measurement, a single class, a single combination, or
    classes that each belong to one combination, which nobody could predict for another one. This
    is a first look; results, with their controls, are those of `lc.decode`.
    """
    from latentcode.probes.decoding.logistic import fit_probe

    codes, values = chosen.codes, chosen.label(label)
    if is_measurement(values) or values.nunique() < 2 or "combination" not in codes.labels:
        return None
    classes = in_order(values)
    index = {value: i for i, value in enumerate(classes)}
    target = np.zeros((len(values), len(classes)), dtype=bool)
    target[np.arange(len(values)), [index[v] for v in values]] = True
    clusters = combination_clusters(codes)
    if pd.Series(clusters).groupby(values.to_numpy()).nunique().max() < 2:
        return None
    x = chosen.points.astype(np.float64)
    guess = np.empty(len(values), dtype=np.int64)
    rng = np.random.default_rng(0)
    part = rng.permutation(clusters.max() + 1)[clusters] % FOLDS
    for fold in np.unique(part):
        fit, ask = np.flatnonzero(part != fold), np.flatnonzero(part == fold)
        if len(fit) > PROBED:
            fit = np.sort(rng.choice(fit, PROBED, replace=False))
        try:
            probe = fit_probe(x[fit], target[fit], clusters[fit], multilabel=False,
                              penalties=(1e-3,))
        except ProbeError:
            return None
        guess[ask] = probe.predict(x[ask]).argmax(1)
    return Guesses(guess, classes)


def confusion(guesses: Guesses, values: pd.Series, selected: np.ndarray, *,
              dark: bool) -> go.Figure:
    """Rows: the true class of the selected instances. Columns: the predicted class."""
    classes = guesses.classes
    index = {value: i for i, value in enumerate(classes)}
    truth = np.array([index[v] for v in values[selected]], dtype=np.int64)
    counts = np.zeros((len(classes), len(classes)))
    np.add.at(counts, (truth, guesses.guess[selected]), 1.0)
    rows = counts.sum(1, keepdims=True)
    names = [value_name(values.name, c) for c in classes]
    figure = go.Figure(go.Heatmap(
        z=np.divide(counts, rows, out=np.full_like(counts, np.nan), where=rows > 0),
        customdata=counts, x=names, y=names, zmin=0.0, zmax=1.0, showscale=False, xgap=1, ygap=1,
        colorscale=[[0.0, "#1B222B" if dark else "#F4F6F8"], [1.0, ACCENT]], hoverongaps=False,
        hovertemplate="is %{y}, predicted %{x}<br>%{customdata} instances, %{z:.0%}"
                      "<extra></extra>"))
    every = {"type": "category", "dtick": 1, "tickfont": {"size": 10}}
    figure.update_yaxes(autorange="reversed", title="is", **every)
    figure.update_xaxes(title="predicted", **every)
    return styled(figure, height=max(150, 80 + 15 * len(names)), dark=dark, margin_t=4)


__all__ = ["HEIGHT", "Guesses", "confusion", "distribution", "guesses", "heads",
           "show_distribution"]
