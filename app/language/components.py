"""Texts whose tokens are shaded by attention, and a prompt whose words are changed in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from latentcode.app.assets import own_component
from latentcode.app.language.tokens import shown
from latentcode.app.state.messages import answering
from latentcode.app.state.turns import heard, turn

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


def editing(text: str, edited: str, note: Callable[[str], None], *, key: str, most: int) -> None:
    """Show a prompt as it was edited, and call `note` with the whole of it when a word is changed.

    text  before any edit: words that differ stand beside what they were
    most  characters of a text that is taken
    """
    def noted() -> None:
        told = heard(key, "edited").get("edited")
        if isinstance(told, str) and 0 < len(told) <= most:
            note(told)

    own_component(__name__, "editing")(key=key, on_edited_change=answering(noted),
                                       height="content",
                                       data={"text": text, "edited": edited, "most": most,
                                             "turn": turn(key)})
