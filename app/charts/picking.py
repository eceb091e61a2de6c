"""Small charts of our own, a click on which chooses what a widget of the sidebar does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.state.messages import answering

Option = TypeVar("Option", str, int)


def pick(
    name: str, data: Mapping[str, Any], options: Sequence[Option], *, key: str, shown: Option
) -> None:
    """Show a chart; an option that is clicked becomes the value of the widget `key`.

    name     of the script beside this module, which draws `data` and reports `picked`
    options  what can be clicked
    key      of the widget, anywhere on the page
    shown    what the page shows now

    In a fragment, too, the whole page is run again, the widget with it.
    """
    own, clicked = f"{name} chart", f"{key} was clicked"

    def noted() -> None:
        value = st.session_state[own]["picked"]
        if value in options:
            st.session_state[key] = value
            st.session_state[clicked] = True

    if st.session_state.pop(clicked, False) and st.session_state[key] != shown:
        st.rerun()  # a click in a fragment has run that alone, with what was shown before
    own_component(__name__, name)(
        key=own, data=dict(data), on_picked_change=answering(noted))
