"""The state of the explorer is in its URL, so that a view can be shared.

Every choice is there, defaults too, which depend on data: an address that left them out would give
another picture elsewhere. A page says what it shows by `choose`, `note` and `remembered`; when it
has been shown, `write_address` writes that into the URL, once.

What a list or a row of buttons chooses is a step that the browser's Back takes; what is clicked,
drawn, dragged or zoomed replaces the address of the step. Streamlit adds a step with every change,
and cannot do otherwise; `STAYS` tells our script in the browser (app/history.js) to replace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from latentcode.app.words import literal

Option = TypeVar("Option")

Form = Literal["list", "buttons"]

CHOSEN, PAGE, ASKED = "chosen on any page", "page shown last", "asked by the address"
SAID, STEPS, DEFAULTS = "said in addresses", "what is chosen in steps", "defaults of the page"
PARTS = "said by parts of the page"
ARRIVED, SHOWN = "arrived at the page", "shown since somebody arrived"
"""Names in the session."""
STAYS = "stays"
"""Parameter of an address that is no step; the browser never shows it."""
MOST = 7_800
"""Letters of the longest address without its host and page."""


def choose(
    label: str, options: Sequence[Option], *, key: str,
    default: Option | Callable[[], Option] | None = None,
    form: Form = "list", help: str | None = None,
    shown: Callable[[Any], str] = str,
    label_visibility: Literal["visible", "hidden", "collapsed"] = "visible", where: Any = st,
    also: Mapping[str, Option] | None = None,
) -> Option:
    """Return the option that the URL or the user chooses, by default `default` or the first.

    default  or what returns it, which is called where nobody has chosen
    key      name of the widget and of the URL's parameter
    shown    text of an option, on the page and in the URL
    where    the part of the page that has the widget, such as `st.sidebar`
    also     second names of options, that other views or older addresses have for them

    An option that does not exist (any more), as the URL is wrong or another model is shown, gives
    way to the default; if the URL asked for it, a message says so. Who has chosen nothing is shown
    the default, also where it becomes another one.
    """
    asked, state = _asked(key), st.session_state
    texts = {**(also or {}), **{shown(option): option for option in options}}
    defaults = state.setdefault(DEFAULTS, {})
    before = _before(key)
    value: Any = texts.get(before, before) if isinstance(before, str) else before
    if asked is not None:
        value = texts.get(asked[-1]) if asked else None
    if value not in options or (key in defaults and value == defaults[key]):
        value = defaults[key] = (default() if callable(default) else
                                 options[0] if default is None else default)
    else:
        defaults.pop(key, None)  # what was the default can be chosen from now on
    if asked and asked[-1] not in texts:
        where.warning(literal(f"There is no {key} {asked[-1]!r} here; showing {shown(value)!r}. "
                              f"Expected one of: {', '.join(map(shown, options[:12]))}."),
                      icon=":material/link_off:")
    put(key, value)
    settings: dict[str, Any] = {"key": key, "format_func": shown, "help": help,
                                "label_visibility": label_visibility}
    chosen = (where.segmented_control(label, options, required=True, **settings)
              if form == "buttons" else where.selectbox(label, options, **settings))
    chosen = value if chosen is None else chosen
    return say(key, chosen, [shown(chosen)])


def choose_several(
    label: str, options: Sequence[Option], *, key: str, default: Sequence[Option] = (),
    help: str | None = None, most: int | None = None,
) -> list[Option]:
    """Return the options that the URL or the user chooses; see `choose`."""
    asked, state = _asked(key), st.session_state
    if asked is not None:
        texts = {str(option): option for option in options}
        # An address that says "none" has the parameter, without a text.
        state[key] = [texts[text] for text in asked if text in texts] if asked else [*default]
    value = _before(key) if asked is None else state[key]
    value = default if value is None else value
    kept = [option for option in value if option in options]
    put(key, kept)
    chosen: list[Option] = st.multiselect(
        label, options, key=key, help=help, max_selections=most)
    return say(key, chosen, [str(option) for option in chosen] or [""])


def put(key: str, value: object) -> None:
    """Let the widget of a key, which is yet to come, show a value.

    Only what is set comes to the browser, which would go on showing an option that is gone. What a
    widget of the same key has on the page shown before is not yet that of the page that is opened.
    """
    state = st.session_state
    if not _is_shown(key) or key not in state or state[key] != value:
        state[key] = value
    state.setdefault(SHOWN, set()).add(key)


def note(key: str, value: Option) -> Option:
    """Note for the address and the other pages what a widget has chosen, and return it."""
    return say(key, value, [str(value)])


def say(key: str, value: Option, texts: Sequence[str]) -> Option:
    """Note the same of a widget whose value has these texts in the URL."""
    st.session_state.setdefault(CHOSEN, {})[key] = value
    st.session_state.setdefault(STEPS, set()).add(key)
    _said()[key] = [*texts]
    return value


def take(key: str, value: object) -> None:
    """Let the widget of a key show a value on the page that is opened next."""
    st.session_state.setdefault(CHOSEN, {})[key] = value


def _before(key: str) -> Any:
    """Return what a widget has, or had on the page before; None where it is new."""
    state, chosen = st.session_state, st.session_state.get(CHOSEN, {})
    if key in chosen and not (_is_shown(key) and key in state):
        return chosen[key]
    return state.get(key)


def _is_shown(key: str) -> bool:
    """Whether the page has shown a widget since somebody arrived: what it has now was chosen here.

    Also where a click has ended the page's first run before its end.
    """
    return key in st.session_state.get(SHOWN, ())


def chosen(key: str) -> Any:
    """Return what was chosen last, on this page or another; None where nothing was."""
    asked = _address().get(key) if ASKED not in st.session_state else None
    return st.session_state.get(key, st.session_state.get(CHOSEN, {}).get(
        key, asked[-1] if asked else None))


def asked_for(key: str) -> list[str] | None:
    """Return what the address asks a widget for, once; see `_asked`."""
    return _asked(key)


def open_address(page: str) -> None:
    """Begin a run of a page: find out whether its address or the session says what it shows.

    The address does when it was opened, and when the browser goes back or forward to it; else the
    page shows what was chosen on it or on others, also where the address says nothing, as the page
    had been left before its end.
    """
    state = st.session_state
    arrived = state.get(PAGE) != page
    state[PAGE] = page
    if arrived:
        state[DEFAULTS] = {}
        state[ARRIVED] = True
        state[SHOWN] = set()
    if went_back() and (address := _address()):
        state[ASKED] = {key: address.get(key, []) for key in {*address, *_said()}}
        state[DEFAULTS] = {}
    _said().clear()
    state[PARTS] = {}


@contextmanager
def part(name: str, *, alone: bool) -> Iterator[None]:
    """Let a part of the page say what it shows.

    alone  it is run again without its page: what it said before is over
    """
    said, parts = _said(), st.session_state.setdefault(PARTS, {})
    for key in parts.pop(name, ()) if alone else ():
        said.pop(key, None)
    before = {*said}
    try:
        yield
    finally:
        parts[name] = {*parts.get(name, ()), *({*said} - before)}


def went_back() -> bool:
    """Whether the browser's Back or Forward has led to this run."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def write_address() -> None:
    """Write what the page has said into the URL, where it is not there yet."""
    said, now = _said(), _address()
    wanted = {key: texts for key, texts in said.items() if texts}
    if len(urlencode(wanted, doseq=True)) > MOST:
        st.warning("This view is too long for an address: what was drawn or kept last is not in "
                   "it. Clear a selection, or keep fewer.", icon=":material/link_off:")
        while len(urlencode(wanted, doseq=True)) > MOST:
            wanted.pop(max(wanted, key=lambda key: len("".join(wanted[key]))))
    arrived = st.session_state.pop(ARRIVED, False)
    if wanted == now:
        return
    chosen = st.session_state.get(STEPS, set())
    step = not arrived and any(
        key in chosen and key in now and now[key] != texts for key, texts in wanted.items())
    stays = {} if step else {STAYS: st.session_state.get(PAGE, "")}
    st.query_params.from_dict({**stays, **wanted})


def address() -> dict[str, list[str]]:
    """Return what the page has said of itself so far: at its end, what its address holds."""
    return {key: [*texts] for key, texts in _said().items() if texts}


def go_to(address: Mapping[str, list[str]]) -> None:
    """Let the next run of the page show what an address of it says, as if it were opened anew."""
    st.session_state[ASKED] = {key: address.get(key, []) for key in {*address, *_said()}}
    st.session_state[DEFAULTS] = {}


def remembered(key: str) -> str | None:
    """Return the value of `key` in the URL, or in this session; what no widget holds."""
    asked = _asked(key)
    if asked is not None:
        _keep(key, asked[-1] if asked else None)
    value: str | None = st.session_state.get(key)
    if value is not None:
        _said()[key] = [value]
    return value


def remembered_number(key: str, default: Option, most: int) -> int | Option:
    """Return the number that the URL has for `key`, from 0 to `most`; `default` if it has none.

    Anything else is forgotten, with a message. The URL comes to have the default, too.
    """
    text = remembered(key)
    if text is None:
        if default is not None:
            _said()[key] = [str(default)]
        return default
    if text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most:
        return int(text)
    remember(key, None)
    st.warning(literal(f"There is no {key} {text[:20]!r} here; expected 0 to {most:,}."),
               icon=":material/link_off:")
    return remembered_number(key, default, most)


def remember(key: str, value: str | None, *, step: bool = False) -> None:
    """Put a value into the URL and the session, or take it out of both with None.

    step  whether the browser's Back takes it back
    """
    _asked(key)  # what the address has asked for is over
    if step:
        st.session_state.setdefault(STEPS, set()).add(key)
    _keep(key, value)
    if value is None:
        _said().pop(key, None)
        st.session_state.get(CHOSEN, {}).pop(key, None)  # a widget begins with its default
    else:
        _said()[key] = [value]


def _keep(key: str, value: str | None) -> None:
    if value is None:
        st.session_state.pop(key, None)
    else:
        st.session_state[key] = value


def _asked(key: str) -> list[str] | None:
    """Return the texts that the address asks for, once; None where the session knows better.

    No text at all: the address goes without, which asks for the default.
    """
    if ASKED not in st.session_state:
        st.session_state[ASKED] = _address()
    asked: dict[str, list[str]] = st.session_state[ASKED]
    return asked.pop(key, None)


def _address() -> dict[str, list[str]]:
    """Return what the browser's address says."""
    return {key: st.query_params.get_all(key) for key in st.query_params if key != STAYS}


def _said() -> dict[str, list[str]]:
    """Return what the page has said of itself since it was shown as a whole."""
    pages: dict[str, dict[str, list[str]]] = st.session_state.setdefault(SAID, {})
    return pages.setdefault(st.session_state.get(PAGE, ""), {})
