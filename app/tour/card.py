"""The tour as a card at the bottom of the window; before it, a link, and an offer to newcomers."""

from __future__ import annotations

import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.state.messages import answering
from latentcode.app.state.url import remember, remembered_number
from latentcode.app.tour.steps import PARAMETER, STEPS, address

KEY = "tour card"
CAME = "came without an address"
"""Name in the session: the page that it opened on, by an address that asks for nothing."""


def show_tour(page: str) -> None:
    """Show the step that the URL names; without one, the link that starts the tour.

    page  the part of the URL that names the page
    """
    number = remembered_number(PARAMETER, None, len(STEPS))
    component = own_component(__name__, "tour")
    component(key=KEY, on_closed_change=answering(lambda: remember(PARAMETER, None)), data={
        "first": address(1), "offered": st.session_state.get(CAME) == page,
        "step": _described(number) if number else None})


def _described(number: int) -> dict[str, object]:
    step = STEPS[number - 1]
    return {
        "number": number, "of": len(STEPS), "title": step.title, "text": step.text, "do": step.do,
        "at": step.at, "here": address(number),
        "back": address(number - 1) if number > 1 else None,
        "next": address(number + 1) if number < len(STEPS) else None}
