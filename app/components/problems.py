"""Problems as components: tokens and places to click, attention as shades of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.charts.map import distinct
from latentcode.app.state.messages import answering, heard, turn
from latentcode.app.words import literal
from latentcode.figures.colours import PALETTE

ROLES = ("queries", "keys")
"""What a token that is clicked is chosen as: what attends, or what is attended to."""
_RUN = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
SHOWN = 3
"""How many heads are shown at first, the strongest."""


def tokens(
    key: str, html: str, chosen: Mapping[str, Sequence[int]],
    written: Mapping[str, Sequence[int]],
    note: Callable[[dict[str, tuple[int, ...]]], None], *, n: int, label: str,
) -> None:
    """Show a problem whose tokens are clicked, or drawn over; call `note` with what is chosen.

    html     the problem; what shows a token has its position as `data-token`
    chosen   role -> tokens that somebody has chosen
    written  role -> tokens of which something is written; they are marked
    n        how many tokens it has
    label    what the problem is called, for those who hear the page
    """
    def noted() -> None:
        told = tokens_of(heard(key, "chosen"), n)
        if told is not None:
            note(told)

    own_component(__name__, "tokens")(
        key=key, on_chosen_change=answering(noted), height="content", data={
            "html": html, "label": label, "turn": turn(key),
            "chosen": {role: list(chosen.get(role, ())) for role in ROLES},
            "written": {role: list(written.get(role, ())) for role in ROLES}})


def tokens_of(told: object, n: int) -> dict[str, tuple[int, ...]] | None:
    """Return what a browser says of n tokens; None where it says something else."""
    if not isinstance(told, dict) or not all(
            isinstance(told.get(role), list | tuple) and all(
                isinstance(token, int) and token in range(n) for token in told[role])
            for role in ROLES):
        return None
    return {role: tuple(sorted(set(told[role]))) for role in ROLES}


def to_text(numbers: Sequence[int]) -> str:
    """Return numbers of tokens as a URL holds them: `0-5_7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "_".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def from_text(text: str, n: int) -> tuple[int, ...] | None:
    """Return the numbers of n tokens that `to_text` wrote; None for any other text."""
    found: set[int] = set()
    for part in text.split("_"):
        match = _RUN.fullmatch(part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < n:
            return None
        found.update(range(first, last + 1))
    return tuple(sorted(found))


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


def attention(
    html: str, scores: np.ndarray, names: Sequence[str], query: int, *, dark: bool,
) -> None:
    """Draw a_hqk, the scores of a query: each token has the shade of the strongest head there.

    html    the problem; what shows a token has its position as `data-token`
    scores  [H, K], of one layer
    names   of the tokens, [K]
    query   position of the query's token
    """
    own_component(__name__, "attention")(key="attention", height="content", data={
        "html": html, "query": query, "names": list(names),
        "scores": scores.astype(float).tolist(), "colours": distinct(len(scores), dark),
        "shown": strongest(scores)})
    st.caption(f"From {literal(names[query])} to the tokens it attends to. Shade: the size of the "
               "score, in the colour of the head whose score is the largest. At first, the "
               f"{min(SHOWN, len(scores))} heads with the largest scores.")
    with st.expander("All scores in numbers"):
        st.dataframe(pd.DataFrame(scores.T, index=pd.Index(names, name="key"), columns=[
            f"head {head}" for head in range(len(scores))]).round(3))


def strongest(scores: np.ndarray, n: int = SHOWN) -> list[int]:
    """Return the n heads that have the largest scores [H, K], in their order."""
    return sorted(np.argsort(-np.abs(scores).max(axis=1), kind="stable")[:n].tolist())
