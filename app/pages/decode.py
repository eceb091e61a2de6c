"""Decode: what probes decode from the codes of a model, layer by layer, beside all controls."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from latentcode.app.charts.theme import is_dark, panel_grid, show_still, show_whole, styled_grid
from latentcode.app.data.catalog import Entry
from latentcode.app.data.loaded import computed_results, open_run, progress_bar, saved_results
from latentcode.app.state.sidebar import choose_entry, choose_pair
from latentcode.app.state.url import choose
from latentcode.app.words import literal, shortened
from latentcode.figures.colours import FEATURE_STYLES, GREY
from latentcode.probes.decoding import HEADLINE, DecodingResult, decode

SPREAD = 0.09
"""How far features of a layer stand apart, in layers, so that their intervals do not overlap."""

_SYMBOLS = {"code": "circle", "residual": "square", "untrained": "triangle-up", "shuffled": "x",
            "bag": "triangle-down", "chance": "diamond"}
_CHANCE = ("#56B4E9", "D", "best constant answer")


def page() -> None:
    """Show what can be decoded from the codes of the model that the sidebar chooses."""
    entry = choose_entry()
    decodings = {name: result for name, result in saved_results(entry).items()
                 if isinstance(result, DecodingResult) and result.is_of_codes}
    if not decodings:
        _offer_to_decode(entry)
        return
    names = list(decodings)
    result = decodings[choose("Result", names, key="result", where=st.sidebar)
                       if len(names) > 1 else names[0]]
    pair = choose_pair([str(pair) for pair in result.table["pair"].unique()])
    table = result.table[result.table["pair"] == pair]
    first = table[table["metric"].isin(HEADLINE)]
    st.markdown("##### What can be decoded from the codes?\n" + best_layers(first))
    show_still(decoding_chart(first, dark=is_dark()), "decoding",
               alt="Scores of probes per layer beside their controls.")
    st.caption("Logistic probes, fitted on training combinations and scored on held-out ones. Bars "
               "are 95 % intervals; the dashed line is chance. Controls: an untrained model, "
               "shuffled labels, and the residual stream that enters the layer.")
    contrasts = result.contrasts.table
    contrasts = contrasts[(contrasts["pair"] == pair) & contrasts["quantity"].isin(HEADLINE)]
    if len(contrasts):
        st.markdown("**The code minus each control**")
        show_still(contrasts_chart(contrasts, dark=is_dark()), "differences",
                   alt="Scores of the code less those of its controls, per layer.")
        st.caption("Differences over the same problems, with 95 % intervals over combinations: "
                   "above the dashed line the code tells more than the control.")
    for note in result.caveats:
        st.caption(f":material/warning: {literal(note)}")
    st.markdown("**All scores**")
    summary = result.summary([str(metric) for metric in table["metric"].unique()])
    show_whole(summary[summary["pair"] == pair].drop(columns="pair").rename(
        columns={features: words for features, (_, _, words) in FEATURE_STYLES.items()}),
        key="decoding-table")


def best_layers(table: pd.DataFrame) -> str:
    """Return a line of Markdown per label: the layer whose code says most, beside its controls.

    table  rows of `DecodingResult.table` of one pair and one metric per label

    The best of several layers is chosen by the very score that is quoted, and the line says so.
    """
    lines = []
    for (label, metric), block in table.groupby(["label", "metric"], sort=False):
        codes = block[block["features"] == "code"]
        best = codes.iloc[int(codes["value"].argmax())]
        beside = [f"{FEATURE_STYLES[str(row.features)][2]} {row.value:.2f}" for row in block[
            (block["layer"] == best["layer"]) & (block["features"] != "code")].itertuples()]
        of = f", the best of {len(codes)}" if len(codes) > 1 else ""
        beside.append(f"chance {best['chance']:.2f}")
        lines.append(f"**{literal(label)}**: {literal(metric).replace('_', ' ')} "
                     f"{best['value']:.2f} [{best['low']:.2f}, {best['high']:.2f}] from the code "
                     f"of layer {best['layer']}{of}; " + ", ".join(beside))
    return "\n\n".join(lines)


def _offer_to_decode(entry: Entry) -> None:
    st.markdown("##### No probes yet")
    if entry.kind == "codes":
        st.info("No probe results are stored with these codes. Fitting probes with all controls "
                "needs the model that the codes come from.", icon=":material/info:")
        return
    if not open_run(entry.path).checkpoints():
        st.info("This run has no trained weights yet, so there is nothing to probe.",
                icon=":material/hourglass_empty:")
        return
    st.markdown("Fit logistic probes with all controls: an untrained model, shuffled labels and "
                "the residual stream. This takes a minute or two. The result is kept in your "
                "cache; the run's folder is not changed.")
    if st.button("Run the probes now", type="primary", icon=":material/play_arrow:", key="probe"):
        _decode(entry, computed_results(entry) / "decoding")
        st.rerun()


def _decode(entry: Entry, folder: Path) -> None:
    """Probe a run's newest weights with a bar on the page, and save the result."""
    with st.status("Extracting codes and fitting probes …", expanded=True):
        with progress_bar("Fitting probes …") as report:
            result = decode(open_run(entry.path), progress=report)
        result.save(folder, overwrite=True, figures=False)


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
