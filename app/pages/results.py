"""Results: how a model was trained, and what else has been found out about it."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from latentcode.app.charts.theme import (
    is_dark,
    palette,
    panel_grid,
    show_still,
    show_whole,
    styled_grid,
)
from latentcode.app.data.catalog import Entry
from latentcode.app.data.loaded import (
    UNTIL_REPLACED,
    load_saved,
    open_run,
    result_folders,
    saved_results,
)
from latentcode.app.state.sidebar import choose_entry
from latentcode.app.state.url import choose
from latentcode.app.words import literal
from latentcode.figures.colours import GREY
from latentcode.metrics import is_by_constituent, is_loss
from latentcode.probes.common.results import TableResult
from latentcode.probes.decoding import DecodingResult

TRAINING = "Training"
FIRST_METRICS = ("perplexity", "accuracy", "r2")
"""The metrics that tasks quote first."""
MOST_TICKS = 7
"""Ticks of a logarithmic axis."""


def page() -> None:
    """Show the training and the saved results of the model that the sidebar chooses."""
    entry = choose_entry()
    # Those of probes on codes have a page of their own.
    results = {name: result for name, result in saved_results(entry).items()
               if not (isinstance(result, DecodingResult) and result.is_of_codes)}
    shown = list(results) if entry.kind == "codes" else [TRAINING, *results]
    if not shown:
        st.info("No results are stored with these codes.", icon=":material/info:")
        return
    with st.sidebar:
        name = choose("Result", shown, key="saved")
    if name in results:
        _saved(result_folders(entry)[name], results[name])
    else:
        _training(entry)


def _training(entry: Entry) -> None:
    run = open_run(entry.path)
    metrics = run.metrics()
    metrics = metrics[~metrics["metric"].map(is_by_constituent).astype(bool)]
    if len(metrics) == 0:
        st.info("This run has no metrics yet.", icon=":material/hourglass_empty:")
        return
    with st.sidebar:
        log_steps = choose("Steps", ("linear", "log"), key="steps", form="buttons") == "log"
    first = [name for name in FIRST_METRICS if name in set(metrics["metric"])]
    order = {name: i for i, name in enumerate(dict.fromkeys(
        [*first, *sorted((m for m in metrics["metric"].unique() if m != "training_loss"),
                         key=is_loss)]))}
    ordered = metrics.sort_values("metric", key=lambda names: names.map(order), kind="stable",
                                  na_position="last")
    latest = run.latest()
    st.markdown("##### How the model was trained\n" + training_line(latest, first))
    show_still(training_chart(ordered, log_steps=log_steps, dark=is_dark()), "training",
               alt="Metrics of every split over the steps.")
    st.markdown("**Final metrics**")
    _means(latest.reindex([m for m in order if m in latest.index]))
    constituents = run.latest(by_constituent=True)
    if len(constituents):
        st.markdown("**By constituent**")
        _means(constituents)


def _means(table: pd.DataFrame) -> None:
    st.dataframe(table, column_config={split: st.column_config.NumberColumn(format="%.4f")
                                       for split in table.columns})


def training_line(latest: pd.DataFrame, first: list[str]) -> str:
    """Return the newest value, on every split, of the metric that is quoted first."""
    if not first:
        return ""
    row = latest.loc[first[0]].dropna()
    return f"{first[0]}: " + ", ".join(f"**{value:.3f}** on {split}" for split, value
                                       in row.items())


def _saved(folder: Path, result: TableResult) -> None:
    # The name of the class is for those who write Python.
    text = result.title.removeprefix(f"{type(result).__name__}: ")
    st.markdown(f"##### {literal(text[:1].upper() + text[1:])}")
    st.markdown("\n\n".join(map(literal, result.said())))
    for note in result.caveats:
        st.caption(f":material/warning: {literal(note)}")
    show_whole(result.summary(), key="result")
    st.image(_picture(folder), width="content")


@st.cache_data(max_entries=24, show_spinner="Drawing …", hash_funcs=UNTIL_REPLACED)
def _picture(folder: Path) -> bytes:
    """Return the figure of a saved result as a PNG, as it is printed."""
    result = load_saved(folder)
    assert result is not None
    image = io.BytesIO()
    result.figure().savefig(image, dpi=150)
    return image.getvalue()


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
