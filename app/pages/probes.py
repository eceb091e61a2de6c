"""Probes: what the codes of a model say, layer by layer, and how it was trained."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts.probes import (
    cosine_chart,
    decoding_chart,
    training_chart,
    two_codes_chart,
)
from latentcode.app.charts.theme import is_dark
from latentcode.app.data import loaded as data
from latentcode.app.data.sources import Source
from latentcode.app.state.messages import guarded
from latentcode.app.state.selection import Selection
from latentcode.app.state.sidebar import Chosen, choose_codes, choose_source
from latentcode.app.state.url import choose, remember, remembered
from latentcode.app.words import literal
from latentcode.figures.style import SOURCE_STYLES
from latentcode.metrics import is_by_constituent
from latentcode.probes.common.results import TableResult
from latentcode.probes.common.sources import varies
from latentcode.probes.decoding.result import HEADLINE, DecodingResult
from latentcode.probes.similarity.measures import cluster_order, cosine_matrix
from latentcode.probes.similarity.result import SimilarityResult

PROBES, LABELS, TRAINING, OTHERS = "Probe scores", "Similar labels", "Training", "Other results"
FIRST_METRICS = ("accuracy", "r2")
"""The metrics that tasks quote first."""
CENTRINGS = ("centred", "raw")
CELL = "cell"
MATRIX_KEY = "cosine matrix"
STILL = {"displayModeBar": False}


def page() -> None:
    """Show what has been found out about the model that the sidebar chooses."""
    source = choose_source()
    results = data.results(source)
    decodings = {n: r for n, r in results.items() if isinstance(r, DecodingResult)}
    others = {n: r for n, r in results.items() if n not in decodings}
    is_model = source.kind != "codes"
    views = [*([PROBES] if is_model or decodings else []), LABELS,
             *([TRAINING] if is_model else []), *([OTHERS] if others else [])]
    view = choose("Show", views, key="view", form="buttons")
    if view == PROBES:
        _probes(source, decodings)
    elif view == LABELS:
        _labels(choose_codes(source), others)
    elif view == TRAINING:
        _training(source)
    else:
        _others(source, others)


def _probes(source: Source, decodings: dict[str, DecodingResult]) -> None:
    if not decodings:
        _offer_to_probe(source)
        return
    name = choose("Result", list(decodings), key="result") if len(decodings) > 1 else next(
        iter(decodings))
    result = decodings[name]
    pairs = [str(pair) for pair in result.table["pair"].unique()]
    with st.sidebar:
        pair = choose("Pair (query → key)", pairs, key="pair",
                      help="The code is the attention of all heads for this query and key.")
    table = result.table[result.table["pair"] == pair]
    first = table[table["metric"].isin(HEADLINE)]
    st.markdown("##### What can be read out of the codes?\n" + best_layers(first))
    st.plotly_chart(decoding_chart(first, dark=is_dark()), theme=None, config=STILL,
                    key="decoding", alt="Scores of probes per layer beside their controls.")
    st.caption("A logistic probe is fitted to codes of training combinations and asked about "
               "combinations that were never trained on. Bars are 95 % intervals. Only what "
               "exceeds the controls is the code's own merit.")
    for note in result.caveats:
        st.caption(f":material/warning: {literal(note)}")
    metrics = [str(metric) for metric in table["metric"].unique()]
    st.markdown("**The same as a table**")
    summary = result.summary(metrics)
    st.dataframe(summary[summary["pair"] == pair].drop(columns="pair").rename(
        columns={source: words for source, (_, _, words) in SOURCE_STYLES.items()}),
        hide_index=True)


def best_layers(table: pd.DataFrame) -> str:
    """Return a line of Markdown per label: the layer whose code says most, beside its controls.

    table  rows of `DecodingResult.table` of one pair and one metric per label

    Of several layers the best one is chosen by the score that is quoted, and the line says so.
    """
    lines = []
    for (label, metric), block in table.groupby(["label", "metric"], sort=False):
        codes = block[block["source"] == "code"]
        best = codes.iloc[int(codes["value"].argmax())]
        beside = [f"{SOURCE_STYLES[str(row.source)][2]} {row.value:.2f}" for row in block[
            (block["layer"] == best["layer"]) & (block["source"] != "code")].itertuples()]
        of = f", the best of {len(codes)}" if len(codes) > 1 else ""
        beside.append(f"chance {best['chance']:.2f}")
        lines.append(f"**{literal(label)}**: {literal(metric).replace('_', ' ')} "
                     f"{best['value']:.2f} [{best['low']:.2f}, {best['high']:.2f}] from the code "
                     f"of layer {best['layer']}{of}; " + ", ".join(beside))
    return "\n\n".join(lines)


def _offer_to_probe(source: Source) -> None:
    run = data.open_run(source.path)
    st.markdown("##### No probes yet")
    if not run.checkpoints():
        st.info("This run holds no trained weights yet, so there is nothing to probe.",
                icon=":material/hourglass_empty:")
        return
    st.markdown("Logistic probes with all controls: the codes of an untrained model, shuffled "
                "labels and the residual stream. This takes a minute or two. What they find is "
                "kept in the cache of this computer; the run's folder stays as it is.")
    if st.button("Run the probes now", type="primary", icon=":material/play_arrow:", key="probe"):
        run_probes(source, data.computed_results(source) / "decoding")
        st.rerun()


def run_probes(source: Source, folder: Path) -> None:
    """Probe a run's newest weights with a bar on the page, and save the result."""
    with st.status("Reading codes out of the model and fitting probes …", expanded=True):
        from latentcode.probes.decoding.of_run import decode

        run = data.open_run(source.path)
        with data.progress_bar("Fitting probes …") as report:
            result = decode(run, progress=report)
        folder.parent.mkdir(parents=True, exist_ok=True)
        result.save(folder, overwrite=True, figures=False)


def _labels(chosen: Chosen, results: dict[str, TableResult]) -> None:
    codes, layer, pair = chosen.codes, chosen.layer, chosen.pair
    names = [name for name in data.colour_labels(codes, pair)
             if not data.is_measurement(codes.label(name, pair))
             and codes.label(name, pair).nunique() > 1]
    if not names:
        st.info("No label of these codes has several values to compare.", icon=":material/info:")
        return
    with st.sidebar:
        label = choose("Label", names, key="label", help="Mean codes are taken per value of it.")
        centring = choose("Cosine", CENTRINGS, key="centring", form="buttons",
                          help="centred: of the mean codes less the mean of all values. raw: of "
                               "the mean codes as they are; all of them are alike where scores "
                               "cannot be negative.")
    if not varies(codes.select(layer=layer, pair=pair)):
        st.info(literal(f"All instances have the same code at layer {layer}, {pair}: this early, "
                        "the model cannot know the problem yet. There is nothing to compare."),
                icon=":material/info:")
        return
    _matrix(chosen, label, centring, results)


@st.fragment
@guarded
def _matrix(chosen: Chosen, label: str, centring: str, results: dict[str, TableResult]) -> None:
    """The matrix and what a click on a cell shows; the sidebar is not run again."""
    codes, layer, pair = chosen.codes, chosen.layer, chosen.pair
    means = codes.mean_by(label, layer=layer, pair=pair)
    numbers = codes.label(label, pair).value_counts()
    cosines = cosine_matrix(means.to_numpy(dtype=np.float64), centring)
    if len(means) > 2 and not pd.api.types.is_numeric_dtype(means.index):
        order = cluster_order(cosines)
        means, cosines = means.iloc[order], cosines[np.ix_(order, order)]
    values = [str(value) for value in means.index]
    one, other = _cell(values, cosines)
    st.markdown(f"##### How alike are the mean codes of the values of {literal(label)}?\n"
                f"layer {layer}, {literal(pair)}, {len(codes):,} instances. Click a cell to see "
                "its two codes.")
    left, right = st.columns([1.15, 1.0], gap="medium")
    with left:
        st.plotly_chart(
            cosine_chart(cosines, values, title=label, chosen=(one, other),
                         signed=centring == "centred", dark=is_dark()),
            key=MATRIX_KEY, theme=None, config=STILL, on_select=_noted(values),
            selection_mode="points", alt="Cosines of the mean codes of the values of a label.")
    with right:
        st.markdown(
            f"**{literal(values[one])}** ({numbers[means.index[one]]:,} instances) and "
            f"**{literal(values[other])}** ({numbers[means.index[other]]:,}): {centring} cosine "
            f"**{cosines[one, other]:.2f}**" + _controls(
                results, label, layer, pair, centring, values[one], values[other]))
        st.plotly_chart(
            two_codes_chart(means.iloc[one].to_numpy(), means.iloc[other].to_numpy(),
                            (values[one], values[other]), dark=is_dark()),
            theme=None, config=STILL, key="two codes")


def _cell(values: list[str], cosines: np.ndarray) -> tuple[int, int]:
    """Return the cell that the URL or a click chooses, at first the most alike two values."""
    one, _, other = (remembered(CELL) or "").partition("~")
    if one in values and other in values:
        return values.index(one), values.index(other)
    apart = np.where(np.eye(len(values), dtype=bool), -np.inf, np.nan_to_num(cosines, nan=-1.0))
    row, column = np.unravel_index(int(apart.argmax()), apart.shape)
    return int(row), int(column)


def _noted(values: list[str]) -> Callable[[], None]:
    """Return what puts a clicked cell into the URL."""

    def note() -> None:
        clicked = Selection.from_event(st.session_state.get(MATRIX_KEY)).instances
        if clicked:
            row, column = divmod(clicked[0], len(values))
            remember(CELL, f"{values[row]}~{values[column]}")

    return note


def _controls(
    results: dict[str, TableResult], label: str, layer: int, pair: str, centring: str, one: str,
    other: str,
) -> str:
    """Return the saved cosines of a cell with their controls, in words; nothing without them."""
    for result in results.values():
        if not isinstance(result, SimilarityResult):
            continue
        table = result.cosines
        rows = table[(table["label"] == label) & (table["layer"] == layer)
                     & (table["pair"] == pair) & (table["centring"] == centring)
                     & (table["row"] == one) & (table["column"] == other)]
        if len(rows):
            texts = [f"{SOURCE_STYLES[str(row.source)][2]} {row.value:.2f} "
                     f"[{row.low:.2f}, {row.high:.2f}]" for row in rows.itertuples()]
            n = result.settings["codes"]["n"]
            return (f"\n\nSaved result of {n:,} instances, 95 % intervals: " + ", ".join(texts))
    return ""


def _training(source: Source) -> None:
    metrics = data.open_run(source.path).metrics()
    metrics = metrics[~metrics["metric"].map(is_by_constituent).astype(bool)]
    if len(metrics) == 0:
        st.info("Nothing was measured yet.", icon=":material/hourglass_empty:")
        return
    with st.sidebar:
        log_steps = choose("Steps", ("linear", "log"), key="steps", form="buttons") == "log"
    first = [name for name in FIRST_METRICS if name in set(metrics["metric"])]
    order = {name: i for i, name in enumerate(dict.fromkeys(
        [*first, *(m for m in metrics["metric"].unique() if "loss" not in m), "loss"]))}
    ordered = metrics.sort_values("metric", key=lambda names: names.map(order), kind="stable",
                                  na_position="last")
    run = data.open_run(source.path)
    latest = run.latest()
    st.markdown("##### How it was trained\n" + training_line(latest, first))
    st.plotly_chart(training_chart(ordered, log_steps=log_steps, dark=is_dark()), theme=None,
                    config=STILL, key="training", alt="Metrics of every split over the steps.")
    st.markdown("**At the end**")
    _means(latest.reindex([m for m in order if m in latest.index]))
    constituents = run.latest(by_constituent=True)
    if len(constituents):
        st.markdown("**By constituent**")
        _means(constituents)


def _means(table: pd.DataFrame) -> None:
    st.dataframe(table, column_config={split: st.column_config.NumberColumn(format="%.4f")
                                       for split in table.columns})


def training_line(latest: pd.DataFrame, first: list[str]) -> str:
    """Return the newest value of the metric that is quoted first on every split, in words."""
    if not first:
        return ""
    row = latest.loc[first[0]].dropna()
    return f"{first[0]}: " + ", ".join(f"**{value:.3f}** on {split}" for split, value
                                       in row.items())


def _others(source: Source, others: dict[str, TableResult]) -> None:
    name = choose("Result", list(others), key="other")
    result = others[name]
    # The name of the class is for those who write Python.
    text = result.title.removeprefix(f"{type(result).__name__}: ")
    st.markdown(f"##### {literal(text[:1].upper() + text[1:])}")
    for note in result.caveats:
        st.caption(f":material/warning: {literal(note)}")
    st.dataframe(result.summary(), hide_index=True)
    folder = data.result_folders(source)[name]
    st.image(_picture(folder, data.stamp(folder)), width="content")


@st.cache_data(max_entries=24, show_spinner="Drawing …")
def _picture(folder: Path, stamp: object) -> bytes:
    """Return the figure of a saved result as a PNG, as it is printed."""
    result = data.load_saved(folder)
    assert result is not None
    image = io.BytesIO()
    result.figure().savefig(image, dpi=150)
    return image.getvalue()


__all__ = ["best_layers", "page", "run_probes", "training_line"]
