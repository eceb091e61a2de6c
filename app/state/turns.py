"""What our components tell the page, in turn: an answer to what came before undoes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

TURN = "turn of"
"""Begins the name in the session of the number of what a component has told last."""


def heard(key: str, trigger: str) -> dict[str, Any]:
    """Return what a component has told by a trigger, empty where it is not what ours tell.

    Ours count what they tell, as `turn`, and do not take an answer to what came before.
    """
    told = st.session_state[key][trigger]
    if not isinstance(told, Mapping) or type(told.get("turn")) is not int:
        return {}
    st.session_state[f"{TURN} {key}"] = told["turn"]
    return dict(told)


def turn(key: str) -> int:
    """Return the number of what was `heard` of a component last."""
    # The browser may have counted in a session that is lost: a new one begins above its numbers.
    number: int = st.session_state.setdefault(f"{TURN} {key}", round(1e3 * time.time()))
    return number
