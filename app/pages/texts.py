"""Texts: a map of what a language model's heads attend to, pair by pair."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts import pictures
from latentcode.app.language.page import HEAD, PAIR, Pair, rows_choose, show_progress, show_read
from latentcode.app.language.pair import IN_TEXT, pair_of, row_of, show_near_pair, show_pair
from latentcode.app.language.planes import (
    choose_plane,
    label_of,
    pairs_csv,
    plane_name,
    plane_of,
    sampled,
    show_pairs,
)
from latentcode.app.language.reading import Read
from latentcode.app.language.tokens import shown
from latentcode.app.language.work import Job
from latentcode.app.state.messages import guarded
from latentcode.app.state.selection import Selection
from latentcode.app.state.url import choose, remember, remembered
from latentcode.app.words import literal
from latentcode.probes.heads.clusters import flat_codes, heads_of
from latentcode.probes.projection import Projection

HEIGHT = 430
BESIDE = ("Pair", "Selection")
SELECT = "lm_select"
LISTED, HEADS = 200, 6


def page() -> None:
    """Show the codes of the language model."""
    show_read("Codes of {} on texts", _body)


@guarded
def _body(job: Job) -> None:
    read = job.read
    assert read is not None
    layer, method, colour = choose_plane(list(read.layers))
    left, right = st.columns([1.5, 1.0], gap="medium")
    with left:
        st.markdown(f"##### {len(read.codes):,} codes of {literal(job.title)}, "
                    + ("all layers" if layer is None else f"layer {layer}"))
        show_progress(job, read)
        plane = plane_of(read, layer, method)
        label = label_of(job, read, colour, layer)
        selection, selected = selection_here(read, plane, method, layer, label)
        pair = Pair.named(remembered(PAIR))
        if pair is not None and not (pair.text < read.n_texts
                                     and pair.query < len(read.tokens[pair.text])):
            pair = None

        def noted(found: Selection) -> None:
            if found.instances:
                remember(PAIR, pair_of(read, found.instances[0]).name)
                st.session_state["lm_beside"] = "Pair"
                return
            remember(SELECT, found.to_text() if found else None)
            if found:
                st.session_state["lm_beside"] = "Selection"

        show_pairs(
            job, read, plane, layer, method, colour, noted, selection=selection,
            selected=selected, instance=None if pair is None else row_of(read, pair),
            height=HEIGHT, alt="Codes of pairs of tokens in two dimensions.")
        known = plane.quality.get("trustworthiness")
        trust = "" if known is None else f", trustworthiness {known:.2f}"
        st.caption(literal(f"{method}{trust}. {sampled(read, job.total)}"))
        st.download_button(
            "Pairs and codes, CSV", lambda: pairs_csv(read, layer, plane, label, selected),
            f"pairs-{job.title.replace('/', '-')}.csv", key="download pairs", on_click="ignore",
            help="A line per pair: tokens, positions, text, place on the map, and its code.")
        if pair is not None and job.opened.is_set():
            show_near_pair(job, read, pair, layer)
    with right:
        beside = choose("Beside the map", BESIDE, key="lm_beside", form="buttons",
                        label_visibility="collapsed")
        if beside == "Selection":
            show_selected(read, layer, label, selected)
        elif pair is None:
            st.markdown("##### No pair yet\nEach point is a pair of tokens: a query, and a key "
                        "that it attends to. Its code is the attention of "
                        + ("all heads." if layer is None else f"the heads of layer {layer}.")
                        + " **Click a point** to see the pair in its text, or draw around several.")
        else:
            show_pair(job, read, pair, layer)


def selection_here(
    read: Read, plane: Projection, method: str, layer: int | None, label: pd.Series
) -> tuple[Selection, np.ndarray | None]:
    """Return what the URL says is selected, and which pairs these are, bool [N].

    An outline belongs to the picture that it was drawn in: in another one, such as of more texts,
    nothing is selected.
    """
    selection = pictures.selection_in_url(SELECT)
    if not selection or selection.plane != plane_name(read, layer, method):
        return Selection(), None
    return selection, pictures.inside(selection, plane.coordinates, label)


def show_selected(
    read: Read, layer: int | None, label: pd.Series, selected: np.ndarray | None
) -> None:
    """Show the values, the heads and the pairs of a selection."""
    if selected is None:
        st.markdown("##### No selection\nDraw around points to see what they share; a double click "
                    "clears it.")
        return
    st.markdown(f"##### Selection: {int(selected.sum()):,} of {len(selected):,} pairs")
    counts = label[selected].value_counts()
    shares = pd.DataFrame({
        str(label.name): [str(value) for value in counts.index],
        "here": counts.to_numpy() / selected.sum(),
        "of all": [float((label == value).mean()) for value in counts.index]})
    percent = st.column_config.NumberColumn(format="percent")
    st.dataframe(shares.head(8), hide_index=True, column_config={"here": percent,
                                                                 "of all": percent})
    codes, heads = flat_codes(read.codes, layer), heads_of(read.codes, layer)
    if not selected.all():
        st.markdown("**Heads that attend here more than elsewhere**; click a row to open its card.")
        here, elsewhere = codes[selected].mean(0), codes[~selected].mean(0)
        best = np.argsort(elsewhere - here, kind="stable")[:HEADS].tolist()
        rows_choose(pd.DataFrame({
            "head": [f"L{heads[i][0]}H{heads[i][1]}" for i in best], "mean here": here[best],
            "elsewhere": elsewhere[best]}), [f"L{heads[i][0]}H{heads[i][1]}" for i in best],
            key="heads of selection", into=HEAD, to="heads")
    rows = np.flatnonzero(selected)
    st.markdown("**Pairs**; click a row to open its pair."
                + (f" The first {LISTED}." if len(rows) > LISTED else ""))
    table = read.codes.labels.iloc[rows[:LISTED]]
    rows_choose(pd.DataFrame({
        "query": table["query_token"].map(shown), "key": table["key_token"].map(shown),
        "distance": table["distance"], IN_TEXT: table["context"].map(shown)}),
        [pair_of(read, row).name for row in rows[:LISTED].tolist()], key="pairs of selection",
        into=PAIR, height=260)
