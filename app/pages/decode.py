"""Decode: what probes decode from the codes of a model, layer by layer, beside all controls."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from latentcode.app.charts.decode import contrasts_chart, decoding_chart
from latentcode.app.charts.tables import show_whole
from latentcode.app.charts.theme import is_dark, show_still
from latentcode.app.data.catalog import Entry
from latentcode.app.data.loaded import open_run, progress_bar
from latentcode.app.data.results import computed_results, saved_results
from latentcode.app.state.sidebar import choose_entry, choose_pair
from latentcode.app.state.url import choose
from latentcode.app.words import literal
from latentcode.figures.colours import FEATURE_STYLES
from latentcode.probes.decoding import HEADLINE, DecodingResult


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
        from latentcode.probes.decoding import decode

        with progress_bar("Fitting probes …") as report:
            result = decode(open_run(entry.path), progress=report)
        result.save(folder, overwrite=True, figures=False)
