"""Selections that were kept under a name, in the URL."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np
import streamlit as st

from latentcode.app.charts import pictures
from latentcode.app.state.messages import answering
from latentcode.app.state.selection import Selection
from latentcode.app.state.sidebar import Chosen
from latentcode.app.state.url import remember, remembered
from latentcode.app.words import literal
from latentcode.errors import ConfigError


def _kept_texts() -> dict[str, str]:
    """Return the selections that were kept, by name, as the URL has them."""
    parts = (remembered("kept") or "").split("|")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def kept_here(chosen: Chosen) -> dict[str, tuple[Selection, np.ndarray]]:
    """Return the kept selections that were drawn in a picture of these codes, with its points."""
    found = {}
    for name, text in _kept_texts().items():
        with suppress(ConfigError):  # whoever goes back to it gets the message
            selection = Selection.from_text(text)
            plane = pictures.drawn_in([chosen], selection)
            if plane is not None:
                found[name] = selection, plane.coordinates
    return found


def show_kept() -> None:
    """Offer to go back to a selection that was kept."""
    kept = _kept_texts()

    def go_back() -> None:
        name = st.session_state["kept selection"]
        if name in kept:
            remember("select", kept[name])

    if kept:
        st.pills("Kept selections", list(kept), key="kept selection", format_func=literal,
                 on_change=answering(go_back))


def show_keep(selection: Selection) -> None:
    """Offer to keep the selection under a name."""
    kept, text = _kept_texts(), selection.to_text()

    def keep() -> None:
        name = " ".join(re.split(r"[|=\s]+", st.session_state["name of selection"])).strip()
        st.session_state["not kept"] = (
            "Type a name, by which you will find the selection again." if not name else
            f"There is a selection {name!r}. Type another name, or click it to go back to it."
            if kept.get(name, text) != text else "")
        if not st.session_state["not kept"]:
            remember("kept", "|".join(f"{k}={v}" for k, v in {
                **kept, name: text}.items()))

    if selection:
        with st.popover("Keep", icon=":material/bookmark:", help="Keep this selection by a name"):
            st.text_input("Name", key="name of selection", max_chars=40,
                          on_change=answering(keep))  # Enter keeps it
            st.button("Keep it", on_click=answering(keep))
            if not_kept := st.session_state.pop("not kept", ""):
                st.warning(literal(not_kept), icon=":material/edit:")
