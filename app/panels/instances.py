"""What stands beside the map: one instance, or what the selected ones have in common."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts import pictures
from latentcode.app.charts import selected as panels
from latentcode.app.charts.theme import is_dark
from latentcode.app.components.problems import attention as show_attention
from latentcode.app.data.problem import AWAY, attention, neighbours, problem
from latentcode.app.data.projections import value_name
from latentcode.app.state.messages import answering
from latentcode.app.state.selection import Selection
from latentcode.app.state.sidebar import Chosen
from latentcode.app.state.url import choose, remember
from latentcode.app.words import literal, shortened
from latentcode.codes.latent_codes import is_measurement
from latentcode.errors import LatentCodeError
from latentcode.probes.common.statistics import varies

SAME = "All codes of this layer and pair are the same: "
"""Begins the sentence that says what cannot be told then."""
LOOKS = ("labels", "attention")
"""How the problem is drawn: with its labels (rules, terms, the marks of a text), or with the scores
of the pair's query."""
LISTED = 1_000
"""Most rows in the list of selected instances; the export has all of them."""


def choosable(table: pd.DataFrame, *, key: str, height: int) -> None:
    """Show a table of instances; the one whose row is selected becomes the current instance."""

    def note() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        if rows:
            remember("instance", str(table["instance"].iloc[rows[0]]))

    st.dataframe(table, hide_index=True, height=height, key=key, on_select=answering(note),
                 selection_mode="single-row",
                 column_config={AWAY: st.column_config.NumberColumn(format="%.3f")})


def telling(chosen: Chosen, colour: str) -> list[str]:
    """Return the columns of tables: the colour, correctness, and the combination."""
    column = str(chosen.label(colour).name)
    names = dict.fromkeys((column, "accuracy", "r2", "combination", "function", "target"))
    return [name for name in names if name in chosen.codes.labels]


def show_instance(chosen: Chosen, colour: str, instance: int | None) -> None:
    """Show the instance that was clicked: its problem, its code, its neighbours."""
    if instance is None:
        st.markdown("##### No instance chosen")
        st.markdown("Click a point to see its problem and the model's answer, its code beside the "
                    "mean code of its label, and the instances with the nearest codes.")
        return
    codes = chosen.codes
    head, close = st.columns([4, 1], vertical_alignment="center")
    head.markdown(f"##### Instance {instance}")
    close.button("Close", key="close", type="tertiary", on_click=answering(_close))
    try:
        with st.spinner("Drawing the problem …"):
            shown = problem(chosen.entry, codes, instance)
        st.html(f"<div class='answer'>{shown.answer}</div>")
        look = "labels" if chosen.entry.kind == "codes" else choose(
            "Problem with", LOOKS, key="look", form="buttons", label_visibility="collapsed")
        if look == "attention":
            show_attention(*attention(
                chosen.entry, chosen.split, int(codes.instances()[instance]), chosen.layer,
                chosen.pair), dark=is_dark())
        else:
            st.html(f"<div class='problem'>{shown.html}</div>")
    except LatentCodeError as error:
        st.info(literal(error), icon=":material/info:")
        st.dataframe(codes.labels.iloc[[instance]].T.astype(str), height=180)
    panels.show(_code_bars(chosen, colour, instance), "bars")
    if not varies(chosen.points):
        st.caption(SAME + "none is nearer than another.")
        return
    st.markdown("**Nearest neighbours** among the codes, not in the picture; select a row to go "
                "to that instance.")
    table = neighbours(chosen.points, codes.labels, instance)
    names = ["instance", AWAY, *telling(chosen, colour)]
    choosable(table[names], key=f"near {instance}", height=200)
    if "pages" in st.session_state:
        st.page_link(st.session_state["pages"]["intervene"],
                     label="Patch this problem", icon=":material/edit:")


def _close() -> None:
    remember("instance", None)
    st.session_state["beside"] = "Selection"


def _code_bars(chosen: Chosen, colour: str, instance: int) -> str:
    """Return the code of an instance beside the mean of its label and the mean of all."""
    points, values = chosen.points, chosen.label(colour)
    bars = {f"instance {instance}": points[instance]}
    if not is_measurement(values):
        mine = values.iloc[instance]
        same = (values == mine).to_numpy()
        name = shortened(value_name(values.name, mine))
        bars[f"mean of {colour} {name}"] = points[same].mean(0)
    bars["mean of all"] = points.mean(0)
    return panels.heads(bars, dark=is_dark(), height=230)


def show_selection(
    chosen: Chosen, colour: str, selection: Selection, selected: np.ndarray | None, *,
    listed: int | None = None,
) -> None:
    """Show what the selected instances have in common, or list them.

    listed  height of the list in pixels; None: no list
    """
    if selected is None:
        st.markdown("##### No selection")
        st.markdown("Each point is one problem: click one to see it, or draw around several to "
                    "see what they share. Double-click the map to clear the selection.")
        return
    st.markdown(f"##### Selection: {int(selected.sum()):,} of {len(selected):,} instances")
    if selection.hidden:
        st.caption(pictures.hidden_words(chosen, colour, selection))
    if listed is not None:
        _list(chosen, colour, selection, selected, listed)
        return
    panels.show_distribution(chosen, colour, selected, key="distribution")
    bars = {name: chosen.points[rows].mean(0) for name, rows in (
        ("selection", selected), ("others", ~selected)) if rows.any()}
    panels.show(f"<p><b>Mean code</b></p>{panels.heads(bars, dark=is_dark())}", "mean code")
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
             "it was not fitted to. This is a first look: the page Model has scores with "
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
