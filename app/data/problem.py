"""One problem: its card, the scores of all heads in it, and the codes nearest to its own."""

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
    from latentcode.tasks import Batch

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


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs=loaded.UNTIL_TRAINED)
def attention(
    entry: Entry, split: str, instance: int, layer: int, pair: str
) -> tuple[str, np.ndarray, list[str], int]:
    """Return a problem as HTML, the scores a_hqk of the query of a pair, float [H, K], its tokens'
    names, and q."""
    from latentcode.codes.reader import instances
    from latentcode.models.hypernetwork import two_ways

    task = loaded.task_shown(entry, split)
    one = instances(task, split, [instance])
    queries, _ = task.positions([pair], one)
    query = int(queries.flatten()[0])
    pattern = two_ways(loaded.open_model(entry), one.inputs[0], layer, query).pattern
    return drawn(task, one), pattern[:, query].numpy(), list(task.names_of(one, 0)), query


def drawn(task: Any, batch: Batch) -> str:
    """Return a problem as HTML: in small, or whole where that leaves out some of its tokens."""
    small: str = task.sketch(batch, 0)
    whole: str = task.render(batch, 0, "html")
    return small if small.count(" data-token=") >= batch.inputs.shape[1] else whole
