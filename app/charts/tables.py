"""Tables that are shown whole: text that has no space is broken, and nothing is cut off."""

from __future__ import annotations

import re

import pandas as pd
import streamlit as st

from latentcode.app.words import literal

_INTERVAL = re.compile(r"\[[^\]]*\]")


def show_whole(table: pd.DataFrame, *, key: str, most: int = 16, height: int = 560) -> None:
    """Show a table, the cells of which have as many lines as they need.

    most, height  more rows than that are scrolled, in a box of so many pixels

    A word that is the same in every row is said once, above.
    """
    same = [name for name in table if len(table) > 1 and table[name].nunique() == 1
            and not pd.api.types.is_numeric_dtype(table[name])
            and not _INTERVAL.search(str(table[name].iloc[0]))]
    if same:
        st.caption("In every row: " + ", ".join(
            literal(f"{_in_words(name)} {table[name].iloc[0]}") for name in same) + ".")
    shown = table.drop(columns=same)
    with st.container(key=f"whole-{key}"):
        st.table(shown.map(_cell).rename(columns=lambda name: literal(_in_words(name))),
                 hide_index=True, border="horizontal",
                 height="content" if len(table) <= most else height)


def _in_words(name: object) -> str:
    return str(name).replace("_", " ")


def _cell(value: object) -> str:
    """Return a cell as Markdown that shows its text as it is."""
    if value is None or value != value:
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}"
    # An interval stands in one line.
    return literal(_INTERVAL.sub(lambda found: found[0].replace(" ", "\u00a0"), str(value)))
