"""What leads to an instance: its number, to type, and tables with a row for each."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from latentcode.app.data.problem import AWAY
from latentcode.app.state.messages import answering
from latentcode.app.state.sidebar import Chosen
from latentcode.app.state.url import remember

SAME = "All codes of this layer and pair are the same: "
"""Begins the sentence that says what cannot be told then."""


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


def number_input(label: str, key: str, value: int, most: int, *, labelled: bool = True) -> None:
    """Let a person type the number of a problem, below `most`, which the URL has as `key`.

    labelled  whether the label is seen; without, it is heard
    """
    widget = f"{key} number"
    st.session_state[widget] = value
    st.number_input(label, min_value=0, max_value=most - 1, step=1, key=widget,
                    label_visibility="visible" if labelled else "collapsed",
                    on_change=answering(
                        lambda: remember(key, str(st.session_state[widget]))))
