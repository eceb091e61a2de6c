"""One instance: the problem itself, what the model answers, and its place among the codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.catalog import Entry
from latentcode.codes import LatentCodes
from latentcode.errors import LatentCodeError

if TYPE_CHECKING:
    from latentcode.codes.browser import ProblemCard

AWAY = "distance of codes"
"""The column of how far away a neighbour is; a label may itself be called distance."""
_OF_CODES: dict[Any, Callable[[Any], Any]] = {
    LatentCodes: lambda codes: str(sorted(codes.meta.items(), key=str))}


@st.cache_data(max_entries=256, show_spinner=False, hash_funcs=_OF_CODES)
def problem(entry: Entry, codes: LatentCodes, row: int) -> ProblemCard:
    """Draw the instance of a row of codes again, and let the model answer it.

    Imports torch. `ArtifactError` where what is drawn has other labels than the codes: the codes
    come from another version of the task, or from a GPU, which draws other numbers.
    """
    return _cards(entry, codes, [row], "full")[0]


def card(entry: Entry, codes: LatentCodes, row: int) -> str:
    """Return what the mouse shows of the instance of a row, as HTML; `IndexError` without one."""
    if not 0 <= row < len(codes):
        raise IndexError(row)
    try:
        shown, = _cards(entry, codes, [row], "small")
    except LatentCodeError as error:
        return escape(str(error))
    return f"{shown.html}<div class='answer'>{shown.answer}</div>"


def _cards(
    entry: Entry, codes: LatentCodes, rows: Sequence[int], size: Literal["small", "full"]
) -> list[ProblemCard]:
    from latentcode.codes.browser import cards_of_codes

    model = None if entry.kind == "codes" else loaded.open_model(entry)
    return cards_of_codes(codes, rows, model=model, task=loaded.task_of(codes), size=size)


def neighbours(
    points: np.ndarray, labels: pd.DataFrame, row: int, k: int = 8
) -> pd.DataFrame:
    """Return the k instances whose codes [N, H] are nearest (Euclidean), nearest first.

    Columns: instance, `AWAY`, then the labels.
    """
    distance = np.linalg.norm(points - points[row], axis=1)
    order = np.argsort(distance, kind="stable")
    nearest = order[order != row][:k]
    table = labels.iloc[nearest].reset_index(drop=True)
    table.insert(0, "instance", nearest)
    table.insert(1, AWAY, distance[nearest])
    return table
