"""The arcs as a component of the page: over a problem, one colour a head, width by the score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.charts.map.colours import distinct
from latentcode.app.words import literal

SHOWN = 3
"""How many heads are shown at first, the strongest."""
LEAST = 0.5
"""An arc stands for a score of at least this share of the largest of all heads."""
MOST_ARCS = 40
"""Tokens over which arcs are drawn; of more, each has its scores as a shade."""


def arcs(
    html: str, scores: np.ndarray, names: Sequence[str], query: int, *, dark: bool,
    key: str = "arcs",
) -> None:
    """Draw a_hqk, the scores of a query, as arcs from its token to those of the keys.

    html    the problem; what shows a token has its position as `data-token`
    scores  [H, K], of one layer
    names   of the tokens, [K]
    query   position of the query's token
    key     of the component, where a page has several

    The width is by |a|, and negative scores are dashed. Tokens in one line have the arcs above
    them; of more than `MOST_ARCS` tokens each is shaded instead. All scores stand in a table below.
    """
    shaded = len(names) > MOST_ARCS
    largest = np.abs(scores).max(axis=1)
    data = {
        # A container is found by its class, in which its key has hyphens for spaces.
        "place": key.replace(" ", "-"), "query": query, "names": list(names),
        "scores": scores.astype(float).tolist(),
        "colours": distinct(len(scores), dark), "shown": strongest(scores),
        "least": LEAST * float(largest.max()), "largest": float(largest.max()) or 1.0,
        "shaded": shaded}
    with st.container(key=key):
        own_component(__name__, "arcs")(
            key=f"{key} of heads", data=data, height="content")
        st.html(f'<div class="arcs-problem">{html}</div>')
    scale = ("Shade: the size of the score, in the colour of the head whose score is the largest."
             if shaded else "Width: the score, dashed where it is negative; scores below "
             f"{LEAST:.0%} of the largest have no arc.")
    st.caption(f"From {literal(names[query])} to the tokens it attends to. {scale} At first, "
               f"the {min(SHOWN, len(scores))} heads with the largest scores.")
    with st.expander("All scores in numbers"):
        st.dataframe(pd.DataFrame(scores.T, index=pd.Index(names, name="key"), columns=[
            f"head {head}" for head in range(len(scores))]).round(3))


def strongest(scores: np.ndarray, n: int = SHOWN) -> list[int]:
    """Return the n heads that have the largest scores [H, K], in their order."""
    return sorted(np.argsort(-np.abs(scores).max(axis=1), kind="stable")[:n].tolist())
