"""The state of the explorer is in its URL, so that a view can be shared.

Widgets are bound to query parameters by Streamlit (`bind="query-params"`); their key is the name
of the parameter. What no widget holds, such as a lasso, is kept by `remember`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import streamlit as st

from latentcode.app.words import literal

Option = TypeVar("Option")

Form = Literal["list", "buttons"]

CHOSEN, PAGE = "chosen on any page", "page shown last"
"""Names in the session."""


def choose(
    label: str, options: Sequence[Option], *, key: str, default: Option | None = None,
    form: Form = "list", help: str | None = None,
    shown: Callable[[Any], str] = str,
    label_visibility: Literal["visible", "hidden", "collapsed"] = "visible", where: Any = st,
) -> Option:
    """Return the option that the URL or the user chooses, by default `default` or the first.

    key    name of the widget and of the URL's parameter
    shown  text of an option, on the page and in the URL
    where  the part of the page that has the widget, such as `st.sidebar`

    An option that does not exist (any more), as the URL is wrong or another model is shown, gives
    way to the default; if the URL asked for it, a message says so.
    """
    first = options[0] if default is None else default
    asked, texts = st.query_params.get(key), [shown(option) for option in options]
    if key not in st.session_state:
        if asked is not None and asked not in texts:
            where.warning(literal(f"There is no {key} {asked!r} here; showing {shown(first)!r}. "
                                  f"Expected one of: {', '.join(texts[:12])}."),
                          icon=":material/link_off:")
    elif st.session_state[key] not in options:
        # Only what is set comes to the browser, which would go on showing the option that is gone.
        st.session_state[key] = first
    settings: dict[str, Any] = {"key": key, "format_func": shown, "bind": "query-params",
                                "help": help, "label_visibility": label_visibility}
    chosen = (where.segmented_control(label, options, default=first, required=True, **settings)
              if form == "buttons" else
              where.selectbox(label, options, index=list(options).index(first), **settings))
    return note(key, first if chosen is None else chosen)


def choose_several(
    label: str, options: Sequence[Option], *, key: str, default: Sequence[Option] = (),
    help: str | None = None, most: int | None = None,
) -> list[Option]:
    """Return the options that the URL or the user chooses; see `choose`."""
    if key in st.session_state:
        kept = [option for option in st.session_state[key] if option in options]
        if kept != st.session_state[key]:
            st.session_state[key] = kept
    return note(key, st.multiselect(
        label, options, key=key, default=list(default), bind="query-params",
        help=help, max_selections=most))


def note(key: str, value: Option) -> Option:
    """Note for the other pages what a widget has chosen, and return it."""
    st.session_state.setdefault(CHOSEN, {})[key] = value, st.query_params.get_all(key)
    return value


def take_along(page: str) -> None:
    """Give the widgets of a newly opened page the values that they had on the last page.

    Streamlit starts every page with its defaults, even when going back to an earlier URL.
    """
    moved = st.session_state.get(PAGE, page) != page
    st.session_state[PAGE] = page
    if moved:
        for key, (value, text) in st.session_state.get(CHOSEN, {}).items():
            st.session_state[key] = value
            if text:
                st.query_params[key] = text
            else:
                st.query_params.pop(key, None)
        # Of a page that one goes back to, Streamlit begins with the defaults of all that its
        # address had lost on leaving, whatever is set; a second run begins with what is set.
        st.rerun()


def remembered(key: str) -> str | None:
    """Return the value of `key` in the URL, or in this session before it changed pages."""
    if key not in st.session_state and key in st.query_params:
        st.session_state[key] = st.query_params[key]
    value: str | None = st.session_state.get(key)
    if value is not None and st.query_params.get(key) != value:
        st.query_params[key] = value  # which lost it when the page changed
    return value


def remembered_number(key: str, default: Option, most: int) -> int | Option:
    """Return the number that the URL has for `key`, from 0 to `most`; `default` if it has none.

    Anything else is forgotten, with a message.
    """
    text = remembered(key)
    if text is None:
        return default
    if text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most:
        return int(text)
    remember(key, None)
    st.warning(literal(f"There is no {key} {text[:20]!r} here; expected 0 to {most:,}."),
               icon=":material/link_off:")
    return default


def remember(key: str, value: str | None) -> None:
    """Put a value into the URL and the session, or take it out of both with None."""
    if value is None:
        st.session_state.pop(key, None)
        st.query_params.pop(key, None)
    else:
        st.session_state[key] = value
        st.query_params[key] = value
