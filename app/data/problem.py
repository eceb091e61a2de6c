"""One instance: the problem itself, what the model answers, and its place among the codes."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.catalog import Entry
from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, LatentCodeError, check

if TYPE_CHECKING:
    from latentcode.models.transformer import HookedTransformer
    from latentcode.tasks import Batch, Task


@dataclass(frozen=True)
class Problem:
    """An instance as a page shows it.

    html    the problem drawn by its task: the SRAVEN grid with its rules, say
    answer  what the model answers, and the right answer; empty for codes without a model
    right   whether the model answers correctly; None without a model or for a number
    """

    html: str
    answer: str
    right: bool | None


@st.cache_data(max_entries=256, show_spinner="Drawing the problem …", hash_funcs={
    LatentCodes: lambda codes: str(sorted(codes.meta.items(), key=str))})
def problem(entry: Entry, codes: LatentCodes, row: int) -> Problem:
    """Draw the instance of a row of codes again, and let the model answer it.

    Imports torch. `ArtifactError` where what is drawn has other labels than the codes: the codes
    come from another version of the task, or from a GPU, which draws other numbers.
    """
    from latentcode.codes.instances import instances

    task, split = loaded.task_of(codes), str(codes.meta["split"])
    batch = instances(task, split, [int(codes.instances()[row])], seed=int(codes.meta["seed"]))
    drawn, known = task.labels(batch).iloc[0], codes.labels.iloc[row]
    same = all(_equal(drawn[name], known[name]) for name in drawn.index if name in known)
    check(same, f"instance {row} cannot be shown: the problem that the task draws now has other "
          "labels than these codes, which were extracted on another device or by another version",
          ArtifactError)
    html = task.render(batch, 0, "html")
    if entry.kind == "codes":
        return Problem(html, "", None)
    return _answered(html, task, batch, loaded.open_model(entry))


def card(entry: Entry, codes: LatentCodes, row: int) -> str:
    """Return what the mouse shows of the instance of a row, as HTML; `IndexError` without one."""
    if not 0 <= row < len(codes):
        raise IndexError(row)
    try:
        shown = problem(entry, codes, row)
    except LatentCodeError as error:
        return escape(str(error))
    return f"<div class='answer'>{shown.answer}</div><div class='problem'>{shown.html}</div>"


def _equal(a: object, b: object) -> bool:
    if isinstance(a, float | np.floating):
        return bool(np.isclose(float(a), float(b), atol=1e-5))  # type: ignore[arg-type]
    return bool(a == b)


def _answered(html: str, task: Task, batch: Batch, model: HookedTransformer) -> Problem:
    """Let the model answer one instance."""
    import torch

    with torch.inference_mode():
        logits = model(batch.inputs)
    given, wanted = (values[0].tolist() for values in (
        task.answers(logits, batch.targets), batch.targets))
    if batch.targets.is_floating_point():
        answer, target = (", ".join(f"{value:.3f}" for value in values)
                          for values in (given, wanted))
        return Problem(html, f"The model answers <b>{answer}</b>; right is {target}.", None)
    marks = " ".join(
        f"<b style='color:{'inherit' if a == b else '#D55E00'}'>{a}</b>"
        for a, b in zip(given, wanted, strict=True))
    right = given == wanted
    text = f"The model answers {marks}" + (
        ": right." if right else f"; right is {' '.join(map(str, wanted))}.")
    return Problem(html, text, right)


def neighbours(
    points: np.ndarray, labels: pd.DataFrame, row: int, k: int = 8
) -> pd.DataFrame:
    """Return the k instances whose codes [N, H] are nearest (Euclidean), nearest first.

    Columns: instance, distance, then the labels.
    """
    distance = np.linalg.norm(points - points[row], axis=1)
    distance[row] = np.inf
    k = min(k, len(points) - 1)
    nearest = np.argpartition(distance, k - 1)[:k] if k else np.empty(0, dtype=int)
    nearest = nearest[np.argsort(distance[nearest], kind="stable")]
    table = labels.iloc[nearest].reset_index(drop=True)
    table.insert(0, "instance", nearest)
    table.insert(1, "distance", distance[nearest])
    return table


__all__ = ["Problem", "card", "neighbours", "problem"]
