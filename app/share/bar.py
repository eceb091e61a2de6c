"""The menu by which a view is shown to others, at the head of every page.

The picture and the page are made in the browser, of what it shows, when they are asked for: they
are what is on the screen, and cost nothing before. A component whose data no table or chart shows
offers them itself: an element of it with a method `shareTables()` that returns
`[{name, head, rows}]`.
"""

from __future__ import annotations

import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.share.address import MOST, VERSION, checksums, keep_note, note, shown_models
from latentcode.app.state.messages import answering

KEY = "share bar"


def show_bar(title: str) -> None:
    """Offer the link of a page, its picture, a page of its own, and a note that travels along."""

    def noted() -> None:
        said = st.session_state[KEY]["noted"]
        if isinstance(said, dict) and isinstance(said.get("text"), str):
            keep_note(said["text"])

    own_component(__name__, "bar", ("drawing", "picture", "page"))(
        key=KEY, on_noted_change=answering(noted), data={
            "title": title, "version": VERSION, "weights": dict(checksums(shown_models())),
            "note": note(), "most": MOST})
