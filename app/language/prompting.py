"""A prompt that is typed: its codes on the map, what comes next, and what an edit changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts.map.component import Pin
from latentcode.app.language.pair import neighbour_table, show_neighbours
from latentcode.app.language.passes import Seen
from latentcode.app.language.planes import Plane
from latentcode.app.language.reading import Read
from latentcode.app.language.tokens import shown
from latentcode.app.language.work import Job

NEXT = 8
"""Next tokens that are shown."""
NAMED = 6
"""Codes of a prompt that have their key's name on the map, those of the most attention."""


def position(names: Sequence[str], chosen: str) -> int:
    """Return the position of an option of `options`."""
    return options(names).index(chosen)


def options(names: Sequence[str]) -> list[str]:
    """Return tokens as options, each once: with their position."""
    return [f"{i}: {name}" for i, name in enumerate(names)]


def flat(codes: np.ndarray, read: Read, layer: int | None) -> np.ndarray:
    """Return codes [K, L, H] of a layer, or of all, as the plane has them, [K, d]."""
    of = codes if layer is None else codes[:, [read.layers.index(layer)]]
    return of.reshape(len(of), -1).astype(np.float64)


def pins(
    seen: Seen, query: int, read: Read, layer: int | None, plane: Plane, before: Seen | None = None
) -> list[Pin]:
    """Return where the codes of a query with all keys lie on the map, those of the most attention
    first, which are named.

    before  the prompt before it was edited, of as many tokens: a line leads from its codes
    """
    def placed(of: Seen) -> np.ndarray:
        return plane.place(flat(of.codes(query), read, layer))

    at = placed(seen)
    was = None if before is None or len(before.tokens) != len(seen.tokens) else placed(before)
    size = np.abs(flat(seen.codes(query), read, layer)).sum(1)
    return [Pin((float(at[k, 0]), float(at[k, 1])), shown(seen.pieces[k]) if i < NAMED else "",
                None if was is None else (float(was[k, 0]), float(was[k, 1])))
            for i, k in enumerate(np.argsort(-size, kind="stable").tolist())]


def next_tokens(job: Job, passes: dict[str, np.ndarray]) -> pd.DataFrame:
    """Return the tokens that are the likeliest next in any of some passes, with p of each.

    passes  name -> p [V]
    """
    ids: list[int] = []
    per = max(3, NEXT // len(passes))
    for p in passes.values():
        ids += [i for i in np.argsort(-p, kind="stable")[:per].tolist() if i not in ids]
    pieces = job.wait_for_model().texts(ids)
    return pd.DataFrame({"next token": [shown(piece) for piece in pieces],
                         **{name: p[ids] for name, p in passes.items()}})


def show_next(job: Job, passes: dict[str, np.ndarray], key: str) -> None:
    """Show the table of next tokens."""
    most = max(float(p.max()) for p in passes.values())
    st.dataframe(next_tokens(job, passes), hide_index=True, key=key, column_config={
        name: st.column_config.ProgressColumn(
            format="percent", min_value=0.0, max_value=most, width="small")
        for name in passes})


def changed_words(before: Seen, after: Seen) -> str:
    """Say in which tokens two prompts differ."""
    if len(before.pieces) != len(after.pieces):
        return f"{len(before.pieces)} tokens before, {len(after.pieces)} after"
    different = [i for i, (a, b) in enumerate(zip(before.tokens, after.tokens, strict=True))
                 if a != b]
    return ("the same tokens" if not different else "; ".join(
        f"{shown(before.pieces[i])} → {shown(after.pieces[i])}" for i in different[:4]))


def moved(
    before: Seen, after: Seen, query: int, key: int, layer: int | None, read: Read
) -> str | None:
    """Say how far an edit moves the code of a pair; None where the prompts have other lengths."""
    if len(before.tokens) != len(after.tokens):
        return None
    a, b = (flat(seen.codes(query), read, layer)[key] for seen in (before, after))
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return f"1 - cosine {1 - float(a @ b) / size:.3f}" if size else None


def show_near(
    read: Read, seen: Seen, query: int, key: int, layer: int | None
) -> None:
    """List the nearest codes of the sample to that of a pair of a prompt."""
    show_neighbours(read, neighbour_table(read, seen.codes(query)[key], layer),
                    "near prompt", "texts")
