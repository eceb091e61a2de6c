"""The state of the explorer is in its URL, so that a view can be shared.

Every choice is there, defaults too, which depend on data: an address that left them out would give
another picture elsewhere. A page says what it shows by `choose` and `remembered`; when it has been
shown, `write_address` writes that into the URL, once. The session keeps the text of every choice,
which other pages then begin with.

What a list or a row of buttons chooses is a step that the browser's Back takes; what is clicked,
drawn, dragged or zoomed replaces the address of the step. Streamlit adds a step with every change,
and cannot do otherwise; `STAYS` tells our script in the browser (app/history.js) to replace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from latentcode.app.words import literal

Option = TypeVar("Option")

VIEW, SAID, PAGE = "texts of all choices", "what the page has said", "page shown last"
ASKED, SHOWN, DEFAULTS = "asked by the address", "shown since somebody arrived", "defaults"
STEPS, ARRIVED = "what is chosen in steps", "arrived at the page"
"""Names in the session."""
STAYS = "stays"
"""Parameter of an address that is no step; the browser never shows it."""


def choose(
    label: str, options: Sequence[Option], *, key: str,
    default: Option | Callable[[], Option] | None = None,
    form: Literal["list", "buttons"] = "list", help: str | None = None,
    shown: Callable[[Any], str] = str,
    label_visibility: Literal["visible", "hidden", "collapsed"] = "visible", where: Any = st,
    also: Mapping[str, Option] | None = None,
) -> Option:
    """Return the option that the URL or the user chooses, by default `default` or the first.

    default  or what returns it, which is called where nobody has chosen
    key      name of the widget, whose value is a text, and of the URL's parameter
    shown    text of an option, on the page and in the URL
    where    the part of the page that has the widget, such as `st.sidebar`
    also     second names of options, that other views have for them

    An option that does not exist (any more), as the URL is wrong or another model is shown, gives
    way to the default; if the URL asked for it, a message says so. Who has chosen nothing is shown
    the default, also where it becomes another one.
    """
    texts = {**(also or {}), **{shown(option): option for option in options}}
    defaults = st.session_state.setdefault(DEFAULTS, {})
    before = current(key)
    if before not in texts or before == defaults.get(key):
        value = (default() if callable(default) else
                 options[0] if default is None else default)
        defaults[key] = shown(value)
    else:
        value = texts[before]
        defaults.pop(key, None)  # what was the default can be chosen from now on
    if was_asked(key) and before is not None and before not in texts:
        where.warning(literal(
            f"There is no {key} {before[:80]!r} here; showing {shown(value)!r}. Expected one of: "
            f"{', '.join(map(shown, options[:12]))}."), icon=":material/link_off:")
    put(key, shown(value))
    settings: dict[str, Any] = {"key": key, "help": help, "label_visibility": label_visibility}
    listed = [shown(option) for option in options]
    chosen = (where.segmented_control(label, listed, required=True, **settings)
              if form == "buttons" else where.selectbox(label, listed, **settings))
    say(key, [shown(value) if chosen is None else chosen])
    return value if chosen is None else texts[chosen]


def choose_several(
    label: str, options: Sequence[Option], *, key: str, default: Sequence[Option] = (),
    help: str | None = None,
) -> list[Option]:
    """Return the options that the URL or the user chooses; see `choose`."""
    texts = {str(option): option for option in options}
    before = (st.session_state[key] if _is_shown(key)
              else _view().get(key, [str(option) for option in default]))
    was_asked(key)
    put(key, [text for text in before if text in texts])
    chosen: list[str] = st.multiselect(label, list(texts), key=key, help=help)
    say(key, chosen or [""])  # "none" has the parameter, without a text
    return [texts[text] for text in chosen]


def current(key: str) -> str | None:
    """Return the text that a widget has, that the address asks for, or another page has had."""
    if _is_shown(key):
        text: str | None = st.session_state[key]
        return text
    texts = _view().get(key)
    return texts[-1] if texts else None


def put(key: str, value: object) -> None:
    """Let the widget of a key, which is yet to come, show a value.

    Only what is set comes to the browser, which would go on showing an option that is gone.
    """
    state = st.session_state
    if not _is_shown(key) or state[key] != value:
        state[key] = value
    state.setdefault(SHOWN, set()).add(key)


def say(key: str, texts: list[str], *, step: bool = True) -> None:
    """Note for the address and the other pages what is chosen.

    step  whether the browser's Back takes a change of it back
    """
    _view()[key] = texts
    st.session_state.setdefault(SAID, {})[key] = texts
    if step:
        st.session_state.setdefault(STEPS, set()).add(key)


def was_asked(key: str) -> bool:
    """Whether the address has asked for a key, once."""
    _view()
    asked: set[str] = st.session_state[ASKED]
    found = key in asked
    asked.discard(key)
    return found


def _is_shown(key: str) -> bool:
    """Whether the page has shown a widget since somebody arrived: what it has now was chosen here.

    Also where a click has ended the page's first run before its end.
    """
    return key in st.session_state.get(SHOWN, ()) and key in st.session_state


def open_address(page: str) -> None:
    """Begin a run of a page: find out whether its address or the session says what it shows.

    The address does when it was opened, and when the browser goes back or forward to it; else the
    page shows what was chosen on it or on others.
    """
    state, view = st.session_state, _view()
    if state.get(PAGE) != page:
        state.update({PAGE: page, DEFAULTS: {}, SHOWN: set(), ARRIVED: True})
        state[SAID] = {}
    if went_back() and (address := _address()):
        for key in state[SAID]:
            view.pop(key, None)
        view.update(address)
        state.update({DEFAULTS: {}, SHOWN: set(), ASKED: set(address)})
    state[SAID] = {}


def went_back() -> bool:
    """Whether the browser's Back or Forward has led to this run."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def write_address() -> None:
    """Write what the page has said into the URL, where it is not there yet."""
    state, now = st.session_state, _address()
    wanted: dict[str, list[str]] = state.get(SAID, {})
    arrived = state.pop(ARRIVED, False)
    if wanted == now:
        return
    step = not arrived and any(key in state.get(STEPS, ()) and key in now and now[key] != texts
                               for key, texts in wanted.items())
    stays = {} if step else {STAYS: state.get(PAGE, "")}
    st.query_params.from_dict({**stays, **wanted})


def remembered(key: str) -> str | None:
    """Return the value of `key` in the URL, or in this session; what no widget holds."""
    was_asked(key)
    texts = _view().get(key)
    if not texts:
        return None
    say(key, texts, step=False)
    return texts[-1]


def remembered_number(key: str, default: Option, most: int) -> int | Option:
    """Return the number that the URL has for `key`, from 0 to `most`; `default` if it has none.

    Anything else is forgotten, with a message. The URL comes to have the default, too.
    """
    text = remembered(key)
    if text is not None and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most:
        return int(text)
    if text is not None:
        remember(key, None)
        st.warning(literal(f"There is no {key} {text[:20]!r} here; expected 0 to {most:,}."),
                   icon=":material/link_off:")
    if default is not None:
        st.session_state.setdefault(SAID, {})[key] = [str(default)]
    return default


def remember(key: str, value: str | None, *, step: bool = False) -> None:
    """Put a value into the URL and the session, or take it out of both with None.

    step  whether the browser's Back takes it back
    """
    was_asked(key)  # what the address has asked for is over
    st.session_state.setdefault(SHOWN, set()).discard(key)  # of a widget, which then takes it
    if value is None:
        _view().pop(key, None)
        st.session_state.get(SAID, {}).pop(key, None)
    else:
        say(key, [value], step=step)


def _view() -> dict[str, list[str]]:
    """Return the texts of all choices; at first, those that the address asks for."""
    state = st.session_state
    if VIEW not in state:
        state[VIEW] = _address()
        state[ASKED] = set(state[VIEW])
    view: dict[str, list[str]] = state[VIEW]
    return view


def _address() -> dict[str, list[str]]:
    """Return what the browser's address says."""
    return {key: st.query_params.get_all(key) for key in st.query_params if key != STAYS}
