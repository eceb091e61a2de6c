"""Texts whose tokens are shaded by attention: a component of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from latentcode.app.assets import own_component
from latentcode.app.language.tokens import shown

LEVELS = 255


@dataclass(frozen=True)
class Shaded:
    """A text and the attention of a head on it.

    title    what stands above it
    pieces   the texts of T tokens
    pattern  [T, T], of every query, as shares of its attention
    query    whose attention is shown at first
    """

    title: str
    pieces: Sequence[str]
    pattern: np.ndarray
    query: int


def shaded(texts: Sequence[Shaded], *, key: str) -> None:
    """Show texts; the token under the mouse, or the one that arrow keys go to, is the query."""
    own_component(__name__, "shaded")(key=key, height="content", data={"texts": [{
        "title": text.title, "pieces": [shown(piece) for piece in text.pieces],
        "query": int(text.query), "rows": [
            np.rint(LEVELS * np.clip(text.pattern[q, :q + 1], 0.0, 1.0)).astype(int).tolist()
            for q in range(len(text.pieces))]} for text in texts]})
