"""The number of a problem, to type."""

from __future__ import annotations

import streamlit as st

from latentcode.app.state.messages import answering
from latentcode.app.state.url import remember


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
