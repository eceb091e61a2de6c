"""Results: how a model was trained, and what else has been found out about it."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import streamlit as st

from latentcode.app.charts.tables import show_whole
from latentcode.app.charts.theme import is_dark, show_still
from latentcode.app.charts.training import training_chart
from latentcode.app.data.catalog import Entry
from latentcode.app.data.loaded import UNTIL_REPLACED, open_run
from latentcode.app.data.results import load_saved, result_folders, saved_results
from latentcode.app.state.sidebar import choose_entry
from latentcode.app.state.url import choose
from latentcode.app.words import literal
from latentcode.metrics import is_by_constituent, is_loss
from latentcode.probes.common.results import TableResult
from latentcode.probes.decoding import DecodingResult

TRAINING = "Training"
FIRST_METRICS = ("perplexity", "accuracy", "r2")
"""The metrics that tasks quote first."""


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
