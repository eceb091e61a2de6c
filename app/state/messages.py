"""Messages on the page, and what its components tell: an answer to what came before undoes nothing.

Nobody sees a traceback; what cannot be shown is said.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec

import streamlit as st

from latentcode.app.state.url import write_address
from latentcode.app.words import literal
from latentcode.errors import LatentCodeError

P = ParamSpec("P")

FAILED = "what went wrong in a callback"
"""Name in the session."""
_inside: ContextVar[bool] = ContextVar("inside of a page or fragment that is shown", default=False)
TURN = "turn of"
"""Begins the name in the session of the number of what a component has told last."""


def guarded(show: Callable[P, None]) -> Callable[P, None]:
    """Return a function that shows the same, with its errors as messages on the page.

    For pages, and for fragments, which Streamlit calls again without their page. What they have
    shown comes into the address.
    """

    @wraps(show)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        outermost = not _inside.get()
        token = _inside.set(True)
        try:
            if FAILED in st.session_state:
                _say(st.session_state.pop(FAILED))
            show(*args, **kwargs)
        except Exception as error:
            _say(error)
        finally:
            _inside.reset(token)
        if outermost:
            write_address()

    return run


def answering(callback: Callable[..., None]) -> Callable[..., None]:
    """Return a callback of a widget that does the same; its errors are told by the next page.

    Streamlit would not run the page after an error in a callback.
    """

    @wraps(callback)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            callback(*args, **kwargs)
        except Exception as error:
            st.session_state[FAILED] = error

    return run


def _say(error: Exception) -> None:
    if isinstance(error, LatentCodeError):
        st.error(literal(error), icon=":material/error:")
        return
    # The terminal has the traceback; the page has a sentence.
    logging.getLogger(__name__).error("a page of the explorer failed", exc_info=error)
    st.error("Something went wrong that should not have. The terminal that runs the "
             "explorer has the details; please report them.", icon=":material/bug_report:")


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
