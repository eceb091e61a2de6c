"""What the selected instances have in common: labels, mean code, what a probe says of them."""

from __future__ import annotations

import numpy as np
import streamlit as st

from latentcode.app.beside.answer import show_mean
from latentcode.app.beside.tables import SAME, choosable, telling
from latentcode.app.charts import pictures
from latentcode.app.charts import selected as panels
from latentcode.app.charts.theme import is_dark
from latentcode.app.state.selection import Selection
from latentcode.app.state.sidebar import Chosen
from latentcode.app.words import literal
from latentcode.probes.common.statistics import varies

LISTED = 1_000
"""Most rows in the list of selected instances; the export has all of them."""


def show_selection(
    chosen: Chosen, colour: str, selection: Selection, selected: np.ndarray | None, *,
    instance: int, listed: int | None = None,
) -> None:
    """Show what the selected instances have in common, or list them.

    instance  the problem into which their mean code is written
    listed    height of the list in pixels; None: no list
    """
    if selected is None:
        st.markdown("##### No selection")
        st.markdown("Each point is one problem: click one to see it, or draw around several to "
                    "see what they share. Double-click the map to clear the selection.")
        if selection.found:
            st.info(literal(f"No instance has a label like {selection.found!r}."),
                    icon=":material/search_off:")
        return
    st.markdown(f"##### Selection: {int(selected.sum()):,} of {len(selected):,} instances")
    if selection.found and "=" not in selection.found:
        st.caption(literal(f"{selection.found!r} in any label; rule={selection.found}, say, asks "
                           "one label alone."))
    if selection.hidden:
        st.caption(pictures.hidden_words(chosen, colour, selection))
    if listed is not None:
        _list(chosen, colour, selection, selected, listed)
        return
    panels.show_distribution(chosen, colour, selected, key="distribution")
    bars = {name: chosen.points[rows].mean(0) for name, rows in (
        ("selection", selected), ("others", ~selected)) if rows.any()}
    panels.show(f"<p><b>Mean code</b></p>{panels.heads(bars, dark=is_dark())}", "mean code")
    show_mean(chosen, selected, instance)
    guesses = panels.guesses(chosen, colour) if varies(chosen.points) else None
    if guesses is None:
        st.markdown("**Probe**")
        st.caption(literal(
            f"No probe can predict {colour} for combinations that it was not fitted to."
            if varies(chosen.points) else SAME + "no probe can tell them apart."))
        return
    right, shares = guesses.right, guesses.truth.shares()
    most = literal(guesses.truth.names[shares.argmax()])
    st.markdown(
        f"**Probe**: right in {right[selected].mean():.0%} of these, {right.mean():.0%} of all; "
        f"always guessing {most} would be right in {shares.max():.0%} of all",
        help="A logistic probe on the codes of this layer and pair, scored on combinations that "
             "it was not fitted to. This is a first look: the page Decode has scores with "
             "intervals and controls.")
    panels.show(panels.confusion(guesses, selected), "confusion")


def _list(
    chosen: Chosen, colour: str, selection: Selection, selected: np.ndarray, height: int
) -> None:
    rows = np.flatnonzero(selected)
    if len(rows) > LISTED:
        st.caption(f"The first {LISTED:,}; the export has all.")
    table = chosen.codes.labels.iloc[rows[:LISTED]][telling(chosen, colour)]
    table.insert(0, "instance", rows[:LISTED])
    choosable(table, key=f"list {selection.to_text()}", height=height)
