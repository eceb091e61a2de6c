"""What codes do: put what a source computes at one place into a problem; whose answer comes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from latentcode.app.data import moves as data
from latentcode.app.data.catalog import Entry
from latentcode.app.data.preload import in_background
from latentcode.app.moves.component import NOTHING, moves
from latentcode.app.moves.view import shown_problem, view
from latentcode.app.state.messages import guarded
from latentcode.app.state.url import remember, remembered, remembered_number
from latentcode.app.words import literal
from latentcode.errors import LatentCodeError
from latentcode.runs.named import zoo_folders

PUT = ("codes", "values")
KEYS = {"task": True, "kind": True, "put": True, "drop": False, "problem": True}
"""What the address says of this page, and whether the browser's Back takes it back: what buttons
choose; what is dragged into the problem is no step."""


def page() -> None:
    """Show the finding, and let a visitor make it."""
    _body()
    model = f"{remembered('task') or 'sraven'}-{remembered('kind') or 'hyla'}"
    if model in zoo_folders():
        in_background(Entry(model, zoo_folders()[model], "zoo"), "ood")


@st.fragment
@guarded
def _body() -> None:
    shown = _view()
    state = _state(shown)
    shown = {**shown, "problems": _with_problem(shown["problems"], state)}
    for key, step in KEYS.items():
        remember(key, str(state[key]), step=step)
    moves("moves", shown, state, _note)


@st.cache_data(show_spinner=False)
def _view() -> dict[str, Any]:
    return view(data.stored())


def _state(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the address asks for, and the first of everything else."""
    names = {task["name"]: task for task in shown["tasks"]}
    task = _one_of("task", list(names))
    kind = _one_of("kind", [kind["name"] for kind in shown["kinds"]])
    put = _one_of("put", PUT)
    sites = names[task]["sites"]
    places = [move["place"] for move in names[task]["moves"] if not sites or move["site"] == put]
    return {"task": task, "kind": kind, "put": put, "drop": _one_of("drop", [*places, NOTHING]),
            "problem": remembered_number("problem", 0, data.MOST - 1)}


def _one_of(key: str, options: Sequence[str]) -> str:
    """Return what the address has for a key, or the first option, with a message if it is none."""
    asked = remembered(key)
    if asked is None or asked in options:
        return asked or options[0]
    remember(key, None)
    st.warning(literal(f"There is no {key} {asked[:30]!r} here; showing {options[0]!r}. Expected "
                       f"one of: {', '.join(options)}."), icon=":material/link_off:")
    return options[0]


def _with_problem(
    problems: Mapping[str, Sequence[Mapping[str, Any]]], state: dict[str, Any]
) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Return the problems, and the one that is asked for where it is not stored.

    Stored answers of a model that has other weights now are computed anew, and the page says so.
    """
    task, number = state["task"], state["problem"]
    found: dict[str, Sequence[Mapping[str, Any]]] = dict(problems)
    wrong = {name: why for name, why in data.other_weights().items()
             if name.startswith(f"{task}-")}
    if wrong:
        st.warning(literal("; ".join(f"{name} {why}" for name, why in wrong.items())
                           + ": answers are computed now, if they can be."))
    if wrong or all(problem["number"] != number for problem in problems[task]):
        try:
            one = shown_problem(task, data.computed(task, number)) | {"computed": True}
        except LatentCodeError as error:
            st.error(literal(f"Problem {number} cannot be computed: {error}. Shown are the stored "
                             "ones."), icon=":material/error:")
            state["problem"] = problems[task][0]["number"]
        else:
            found[task] = [one] if wrong else [*problems[task], one]
    return found


def _note(chosen: Mapping[str, Any]) -> None:
    """Put what a visitor has chosen into the address."""
    for key in KEYS:
        remember(key, str(chosen[key]))
