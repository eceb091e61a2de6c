"""A problem per layer, whose tokens are cells to click: a component of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import streamlit as st

from latentcode.app.assets import own_component
from latentcode.app.state.messages import answering

IN_GRID = re.compile(r"row(\d+)\.panel(\d+) (.+)")
"""The role of a token that lies in a panel of a grid, as SRAVEN's are named."""
OWN = "own"
"""What such a token shows: the feature that is asked about."""


@dataclass(frozen=True)
class Token:
    """One token of a problem: what is written on its cell, its name, and its panel (or -1)."""

    text: str
    name: str
    panel: int
    own: bool


def tokens_of(
    inputs: np.ndarray, roles: Sequence[str], names: Sequence[str]
) -> list[Token]:
    """Return the tokens of a problem [T, D]: in panels, if their roles lie in a grid.

    A symbol is written as its number, a blank one as ?; other tokens are numbered.
    """
    found = [IN_GRID.fullmatch(role) for role in roles]
    across = max((int(match[2]) for match in found if match), default=0)
    one_hot = bool(((inputs == 0.0) | (inputs == 1.0)).all() and (inputs.sum(-1) <= 1.0).all())
    texts = [str(int(x.argmax())) if x.any() else "?" for x in inputs] if one_hot else [
        str(number) for number in range(len(inputs))]
    return [Token(text, name, (int(match[1]) - 1) * across + int(match[2]) - 1, match[3] == OWN)
            if match else Token(text, name, -1, False)
            for text, name, match in zip(texts, names, found, strict=True)]


def show_cells(
    key: str, tokens: Sequence[Token], values: np.ndarray, about: Sequence[Sequence[str]],
    note: Callable[[int, int], None], *, written: Collection[tuple[int, int]] = (),
) -> None:
    """Show a number [L, T] per layer and token, and call `note` with a layer and token clicked.

    about    what a cell says when the mouse is over it, [L][T]
    written  cells with a frame
    """
    def noted() -> None:
        cell = st.session_state[key]["cell"]
        if isinstance(cell, list | tuple) and len(cell) == 2 and all(
                isinstance(at, int) and at in range(n)
                for at, n in zip(cell, values.shape, strict=True)):
            note(*cell)

    component = own_component(__name__, "cells")
    panels = {token.panel for token in tokens}
    component(key=key, on_cell_change=answering(noted), data={
        "tokens": [asdict(token) for token in tokens],
        "across": round(len(panels) ** 0.5) if len(panels) > 1 else 0,
        "most": float(np.abs(values).max()),
        "layers": [{"title": f"layer {layer}", "cells": [
            {"value": float(value), "about": text}
            for value, text in zip(row, texts, strict=True)]}
            for layer, (row, texts) in enumerate(zip(values, about, strict=True))],
        "written": [list(cell) for cell in written]})
