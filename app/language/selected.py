"""What selected pairs have in common."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.data.projections import legend_entries
from latentcode.app.language.page import HEAD, PAIR, rows_choose
from latentcode.app.language.pair import IN_TEXT, pair_of
from latentcode.app.language.planes import Plane, name
from latentcode.app.language.reading import Read
from latentcode.app.language.tokens import shown
from latentcode.app.state.selection import Selection
from latentcode.app.state.url import remember, remembered
from latentcode.app.words import literal
from latentcode.errors import ConfigError
from latentcode.probes.heads.clusters import flat_codes, heads_of

SELECT = "lm_select"
LISTED, HEADS = 200, 6


def note(selection: Selection) -> None:
    """Put an outline into the URL."""
    remember(SELECT, selection.to_text() if selection else None)
    if selection:
        st.session_state["lm_beside"] = "Selection"


def selection_here(
    read: Read, plane: Plane, layer: int | None, label: pd.Series
) -> tuple[Selection, np.ndarray | None]:
    """Return what the URL says is selected, and which pairs these are, bool [N].

    An outline belongs to the picture that it was drawn in: in another one, such as of more texts,
    nothing is selected.
    """
    try:
        selection = Selection.from_text(remembered(SELECT) or "")
    except ConfigError as error:
        remember(SELECT, None)
        st.warning(literal(error), icon=":material/link_off:")
        return Selection(), None
    if not selection or selection.plane != name(read, layer, plane.method):
        return Selection(), None
    rows = selection.rows(plane.at)
    if selection.hidden and selection.label == label.name:
        off = [value for entry in legend_entries(label) if entry.name in selection.hidden
               for value in entry.values]
        rows &= ~label.isin(off).to_numpy()
    return selection, rows if rows.any() else None


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
            "elsewhere": elsewhere[best]}), [f"{heads[i][0]}.{heads[i][1]}" for i in best],
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
