"""Codes of texts: a map of what a language model's heads attend to, pair by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from latentcode.app.language.page import PAIR, Pair, show_progress, show_read
from latentcode.app.state.messages import guarded
from latentcode.app.state.url import choose, remembered
from latentcode.app.words import literal

if TYPE_CHECKING:
    from latentcode.app.language.work import Job

HEIGHT = 430
BESIDE = ("Pair", "Selection")


def page() -> None:
    """Show the codes of the language model."""
    show_read("Codes of {} on texts", _body)


@guarded
def _body(job: Job) -> None:
    from latentcode.app.language import planes
    from latentcode.app.language.map import choose_plane, show_pairs
    from latentcode.app.language.pair import pair_of, row_of, show_near_pair, show_pair
    from latentcode.app.language.selected import note, selection_here, show_selected
    from latentcode.app.state.selection import Selection
    from latentcode.app.state.url import remember

    read = job.read
    assert read is not None
    layer, method, colour = choose_plane(list(read.layers))
    left, right = st.columns([1.5, 1.0], gap="medium")
    with left:
        st.markdown(f"##### {len(read.codes):,} codes of {literal(job.title)}, "
                    + ("all layers" if layer is None else f"layer {layer}"))
        show_progress(job, read)
        plane = planes.plane(job, read, layer, method)
        label = planes.label(job, read, colour, layer)
        selection, selected = selection_here(read, plane, layer, label)
        pair = Pair.named(remembered(PAIR))
        if pair is not None and not (pair.text < read.n_texts
                                     and pair.query < len(read.tokens[pair.text])):
            pair = None

        def noted(found: Selection) -> None:
            if found.instances:
                remember(PAIR, pair_of(read, found.instances[0]).name)
                st.session_state["lm_beside"] = "Pair"
            else:
                note(found)

        show_pairs(
            job, read, plane, layer, method, colour, noted, selection=selection,
            selected=selected, instance=None if pair is None else row_of(read, pair),
            height=HEIGHT, alt="Codes of pairs of tokens in two dimensions.")
        trust = f", trustworthiness {plane.trust:.2f}" if plane.trust == plane.trust else ""
        st.caption(literal(f"{method}{trust}. {planes.sampled(read, job.total)}"))
        st.download_button(
            "Pairs and codes, CSV", lambda: planes.pairs_csv(read, layer, plane, label, selected),
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
