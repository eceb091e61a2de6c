"""Where one looks in pictures of codes, and which values their legend hides: in the URL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

import streamlit as st

from latentcode.app.state.selection import DIVIDER, escaped
from latentcode.app.state.url import remember, remembered
from latentcode.app.words import literal

OFF = "off"
"""Name in the address of what the legend hides, which pages share as they share the colour."""
_NUMBER = r"-?\d{1,4}(?:\.\d{1,6})?"
_TIMES = r"(?:0\.[5-9]\d{0,3}|[1-9]\d{0,2}(?:\.\d{1,4})?)"
_ZOOMS = re.compile(rf"(?:{_NUMBER}_{_NUMBER}_{_TIMES})?")
"""Of one picture, as the map writes it: x and y of what is in the middle, from -1 to 1 where the
points are, and how many times as large it is, 0.5 or more; nothing for the whole picture."""


class View(NamedTuple):
    """Where one looks, and what is hidden.

    zoom    of every picture, with ~ between them; "" where all are whole
    hidden  names of values
    """

    zoom: str = ""
    hidden: tuple[str, ...] = ()


def view_in_url(
    key: str, planes: Sequence[str], label: str, names: Sequence[str]
) -> View:
    """Return what the URL says of pictures; nothing, with a message, of what cannot be read.

    key     name in the address of where one looks
    planes  names of the pictures: where one looks in others means nothing here
    label   whose values have the names of the legend
    """
    return View(_zoom(key, planes), _hidden(label, names))


def note_view(key: str, view: View, label: str) -> None:
    """Put into the URL where one looks, and what is hidden."""
    remember(key, view.zoom or None)
    remember(OFF, DIVIDER.join(map(escaped, (label, *view.hidden))) if view.hidden else None)


def _zoom(key: str, planes: Sequence[str]) -> str:
    text, seen_in = remembered(key), f"pictures of {key}"
    before, now = st.session_state.get(seen_in), (text, *planes)
    st.session_state[seen_in] = now
    if text is None:
        return ""
    zooms = text.split("~")
    if before is not None and before != now and before[0] == text:
        remember(key, None)  # other pictures were chosen
        st.session_state[seen_in] = (None, *planes)
        return ""
    if len(zooms) != len(planes) or not all(map(_ZOOMS.fullmatch, zooms)):
        remember(key, None)
        shown = "the picture" if len(planes) == 1 else f"each of {len(planes)} pictures, ~ between"
        st.warning(literal(f"The {key} {text[:40]!r} cannot be read; expected x_y_times for "
                           f"{shown}, such as 0.2_-0.1_3, times from 0.5. Nothing is zoomed."),
                   icon=":material/link_off:")
        return ""
    return text


def _hidden(label: str, names: Sequence[str]) -> tuple[str, ...]:
    text = remembered(OFF)
    if text is None:
        return ()
    of, *asked = map(unquote, text.split(DIVIDER))
    hidden = tuple(name for name in names if of == label and name in asked)
    if not hidden or len(hidden) == len(names):
        remember(OFF, None)  # another colour was chosen, whose values have other names
        return ()
    return hidden
