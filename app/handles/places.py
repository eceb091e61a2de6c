"""The places of a source, each a handle: dragged to the problem, it is put in there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.state.messages import answering
from latentcode.figures.colours import PALETTE


@dataclass(frozen=True)
class Place:
    """A place that problem and source have, such as the context.

    about    what it holds, in words
    source   positions of its tokens in the source
    problem  positions of its tokens in the problem
    """

    name: str
    about: str
    source: Sequence[int]
    problem: Sequence[int]


def show_places(
    key: str, html: str, places: Sequence[Place], note: Callable[[str], None], *,
    current: str | None, problem: str, label: str,
) -> None:
    """Show a source, and call `note` with the name of a place that is dragged, clicked or entered.

    html     the source; what shows a token has its position as `data-token`
    current  name of the place that is put in now
    problem  key of the component that shows the problem, on which a place is let go
    label    what the source is called, for those who hear the page
    """
    def noted() -> None:
        name = st.session_state[key]["put"]
        if name in [place.name for place in places]:
            note(name)

    own_component(__name__, "places")(
        key=key, on_put_change=answering(noted), height="content", data={
            "html": html, "label": label, "current": current, "problem": problem,
            "places": [{**asdict(place), "colour": colour}
                       for place, colour in zip(places, PALETTE, strict=False)]})
