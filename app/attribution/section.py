"""The section of the bench that asks where the answer lives, and what a click on its map does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import streamlit as st

from latentcode.app.attribution.cells import show_cells, tokens_of
from latentcode.app.data.benches import OpenBench
from latentcode.app.handles.tokens import to_text
from latentcode.app.state.messages import answering
from latentcode.app.state.url import remember, remembered
from latentcode.app.words import literal
from latentcode.errors import ProbeError
from latentcode.probes.interventions.bench.ask import Ask
from latentcode.probes.interventions.patches import PATCHES

if TYPE_CHECKING:
    from latentcode.probes.attribution import ProblemMap

SHOWN = {"estimated part": "estimates", "written alone": "effects"}
"""What a colour can stand for, in the words of the page: an attribute of the map."""
WITHOUT_SOURCE = ("instance", "mean", "hand")
"""What the page can write that is not the codes of a source of this problem."""
MAP, COLOUR = "cells of the map", "colour of the map"
"""Keys of the map, and of what its colours stand for."""


def where_it_lives(open_: OpenBench, ask: Ask) -> None:
    """Show, once asked, on which codes of the response this answer hangs; a click writes one."""
    if "pair" not in open_.bench.task.scopes or "row" not in open_.bench.task.scopes:
        return
    with st.expander("Which codes of the response does the answer depend on?",
                     icon=":material/grid_view:", expanded=remembered("map") in SHOWN):
        _map(open_, ask)


def _map(open_: OpenBench, ask: Ask) -> None:
    shown = remembered("map")
    if shown not in SHOWN:
        st.caption("Through which of the response's codes does the source's answer come?")
        st.button("Show the map", icon=":material/grid_view:", on_click=answering(remember),
                  args=("map", next(iter(SHOWN))))
        return
    try:
        with st.spinner("Patching every code …"):
            found = open_.map(ask)
    except ProbeError:
        st.info(literal(f"The answers of the problem and of its source (with {ask.target}) are not "
                        "both defined here, or hardly differ: there is no difference to "
                        "attribute."),
                icon=":material/info:")
        return
    st.session_state[COLOUR] = shown
    st.segmented_control(
        "Colour", list(SHOWN), key=COLOUR, required=True,
        on_change=answering(lambda: remember("map", st.session_state[COLOUR])))
    names, unit = open_.names, _unit(open_)
    show_cells(
        MAP, tokens_of(*open_.tokens(ask), names), getattr(found, SHOWN[shown]), [[
            f"{name}: estimated {estimate:+.3g}, written alone {effect:+.3g} {unit}"
            for name, estimate, effect in zip(names, *rows, strict=True)]
            for rows in zip(found.estimates, found.effects, strict=True)],
        _write_cell,
        written=[(layer, key) for layer in ask.first.layers for key in ask.keys])
    st.caption(_meaning(open_, found, shown))
    st.caption(_trust(open_, found))
    st.button("Hide the map", on_click=answering(remember), args=("map", None))


def shown_key(open_: OpenBench, ask: Ask) -> str:
    """Return the key of the code that an outcome shows, in Markdown."""
    return "itself" if ask.key is None else literal(open_.names[ask.key])


def _unit(open_: OpenBench) -> str:
    return "nats" if open_.bench.task.symbolic else "units of the answer"


def _write_cell(layer: int, key: int) -> None:
    """Choose what the page's controls need to write one code, as the map did: all of its heads.

    The map is that of a source, which is the minimal pair where the page writes something else.
    """
    what = str(st.session_state.get("what"))
    if what in WITHOUT_SOURCE or (what in PATCHES and PATCHES[what].own):
        st.session_state["what"] = "interchange"
    st.session_state["heads"] = []
    st.session_state["layers"] = [layer]
    st.session_state["scope"] = "row"
    st.session_state["site"] = "codes"
    st.session_state["and"] = "nothing"
    remember("queries", None)
    remember("keys", to_text([key]))


def _meaning(open_: OpenBench, found: ProblemMap, shown: str) -> str:
    """Say what the colours mean."""
    names = open_.names
    what = {"estimates": "its share of the effect of all codes of the source, estimated from "
                         "gradients",
            "effects": "the effect of the source's code there, patched alone"}[SHOWN[shown]]
    number = ("log p(source's answer) − log p(problem's answer)"
              if open_.bench.task.symbolic else "the answer, counted towards the source's")
    own = (" Underlined: the feature in question." if "panel" in names[0] else "")
    return (f"A cell is the code of the response ({literal(names[found.query])}) attending to that "
            f"token. Colour: {what}, on {literal(number)}; **red** towards the source's answer, "
            f"**blue** away from it.{own} **Click a cell to patch it.**")


def _trust(open_: OpenBench, found: ProblemMap) -> str:
    """Say how far the estimates were checked."""
    checked = ("too few of them have an effect to be compared with the estimates"
               if math.isnan(found.correlation) else
               f"r = {found.correlation:.2f} with the estimates, in this problem")
    return (f"How good the estimates are: those of all codes of all queries and layers sum to "
            f"{found.estimated:.3g} {_unit(open_)}, and patching all has an effect of "
            f"{found.everything:.3g}; the codes shown have {found.estimates.sum():.3g} of the "
            f"estimate. Each was also patched alone: {checked}.")
