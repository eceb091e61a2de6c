"""Tokens as HTML, texts shaded by attention, and a prompt with words that are changed in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from latentcode.app.assets import own_component
from latentcode.app.state.messages import answering, heard, turn
from latentcode.tasks.text.render import MARKS, visible

NEAR = 8
"""Tokens on either side of query and key that a card shows."""
STYLES = {"query": MARKS["query"][1], "key": MARKS["key"][1]}
LEVELS = 255


def pieces_of(model: Any, ids: Sequence[int]) -> list[str]:
    """Return the texts of tokens with the spaces before them, as far as the tokenizer tells."""
    pieces = [piece.replace("\u2581", " ") for piece in model.texts(ids)]
    # Of words that are split at spaces no token has one.
    if model.decode(ids) == " ".join(pieces):
        pieces[1:] = [f" {piece}" for piece in pieces[1:]]
    return pieces


def text_of(model: Any, ids: Sequence[int]) -> str:
    """Return the text of tokens, without a BOS token."""
    ids = list(ids)
    begins = list(model.encode("")[0])[:1] if model.begins() else []
    ids = ids[1:] if begins and ids[:1] == begins else ids
    return str(model.decode(ids))


def shown(piece: str) -> str:
    """Return a token's text on one line, with signs for what cannot be seen."""
    return visible(piece)[1:-1] or "\N{OPEN BOX}"


def marked(query: int, key: int) -> dict[int, str]:
    """Return the styles of a query and its key; of the query where they are one token."""
    return {key: STYLES["key"], query: STYLES["query"]}


def tokens_html(
    pieces: Sequence[str], styles: Mapping[int, str], near: Sequence[int] | None = None,
    *, size: int = 13,
) -> str:
    """Return tokens as HTML, each with its position as `data-token`.

    near  positions around which tokens are shown; None: all
    """
    kept = range(len(pieces)) if near is None else [
        i for i in range(len(pieces)) if any(abs(i - place) <= NEAR for place in near)]
    parts, last = [], -1
    for i in kept:
        if i > last + 1:
            parts.append('<span style="opacity:.6"> \N{HORIZONTAL ELLIPSIS} </span>')
        style = styles.get(i, "background:rgba(128,128,128,.10)" if i % 2 else "")
        parts.append(f'<span data-token="{i}" style="unicode-bidi:isolate;border-radius:3px;'
                     f'{style}">{escape(shown(pieces[i]))}</span>')
        last = i
    if kept and last < len(pieces) - 1:
        parts.append('<span style="opacity:.6"> \N{HORIZONTAL ELLIPSIS}</span>')
    return (f'<div dir="ltr" style="font:{size}px ui-monospace,monospace;color:inherit;'
            f'white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.8">{"".join(parts)}</div>')


LEGEND = (f'<div style="font-size:12px;opacity:.85"><span style="{STYLES["query"]};padding:0 3px">'
          f'query</span> &nbsp;<span style="{STYLES["key"]};padding:0 3px">key</span></div>')


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
