"""Problem cards: the problem that a code comes from, drawn, with the answer of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import torch

from latentcode.codes.instances import instances
from latentcode.config import task_from_dict
from latentcode.errors import ArtifactError, check, check_choice
from latentcode.tasks import Batch, Task, as_task

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes
    from latentcode.config import TaskConfig
    from latentcode.models.transformer import HookedTransformer

Size = Literal["small", "full"]
Answer = tuple[int | float | str, ...]
WRONG = "#D55E00"
"""The colour of a wrong symbol, which reads on light and on dark pages."""


@dataclass(frozen=True)
class ProblemCard:
    """A problem to look at, with the model's answer and the right one; a notebook shows it.

    instance  which of the instances of its split it is, from 0
    html      the problem drawn by its task; what shows a token has its position in the model's
              input as `data-token`
    given     what the model answers, a symbol, a number or a text per target that is told of;
              empty without a model
    target    the right answer
    """

    instance: int
    html: str = field(repr=False)
    given: Answer
    target: Answer

    @property
    def right(self) -> bool | None:
        """Whether every symbol is right; None without a model, and where numbers are predicted."""
        if not self.given or any(isinstance(value, float) for value in self.target):
            return None
        return self.given == self.target

    @property
    def answer(self) -> str:
        """The two answers in a sentence of HTML, in which wrong symbols stand out."""
        target = _written(self.target)
        if not self.given:
            return f"The right answer is {target}."
        if self.right is None:
            return f"The model answers <b>{_written(self.given)}</b>; right is {target}."
        marks = " ".join(
            f"<b style='color:{'inherit' if a == b else WRONG}'>{escape(str(a))}</b>"
            for a, b in zip(self.given, self.target, strict=True))
        truth = ": right." if self.right else f"; right is {target}."
        return f"The model answers {marks}{truth}"

    def _repr_html_(self) -> str:
        return (f'<div style="font:12px system-ui,sans-serif;color:inherit">'
                f'<div style="margin-bottom:4px"><b>Problem {self.instance:,}</b></div>'
                f'{self.html}<div style="margin-top:4px">{self.answer}</div></div>')


def _written(values: Answer) -> str:
    """Return answers as HTML."""
    return (", ".join(f"{value:.3f}" for value in values)
            if any(isinstance(value, float) for value in values)
            else escape(" ".join(map(str, values))))


def problem_card(
    task: Task | TaskConfig, split: str, row: int, *, model: HookedTransformer | None = None,
    seed: int = 0, size: Size = "small", device: torch.device | str = "cpu",
) -> ProblemCard:
    """As `problem_cards`, for a single instance."""
    return problem_cards(task, split, [row], model=model, seed=seed, size=size, device=device)[0]


def problem_cards(
    task: Task | TaskConfig, split: str, rows: Sequence[int], *,
    model: HookedTransformer | None = None, seed: int = 0, size: Size = "small",
    device: torch.device | str = "cpu",
) -> list[ProblemCard]:
    """Draw instances of a split again, and let a model answer all of them in one forward pass.

    task    what they are drawn from; codes say so in `meta["task"]`
    rows    the numbers of the instances in their split, from 0
    model   who answers; None: nobody
    seed    that of the extraction
    size    "small" for a card of about 260 x 220 px, "full" as `Task.render` draws it
    device  where the codes were extracted, as a GPU draws other numbers from the same seed

    Raises what `instances` raises, and `UnknownNameError` for another size.
    """
    task = as_task(task)
    batch = instances(task, split, rows, seed=seed, device=device)
    return _cards(task, batch, rows, model, size)


def cards_of_codes(
    codes: LatentCodes, rows: Sequence[int], *, model: HookedTransformer | None = None,
    task: Task | None = None, size: Size = "small", device: torch.device | str = "cpu",
) -> list[ProblemCard]:
    """Return the problems that rows of codes are the codes of, as `problem_cards`.

    rows  rows of these codes, from 0
    task  the codes' own, where it is at hand; default: made from what they say of it

    `ConfigError` for codes of prompts, which no task has drawn, and for a row that there is not;
    `ArtifactError` where what is drawn has other labels than the codes: these come from another
    version of the task, or from a GPU, which draws other numbers.
    """
    task = task_of(codes) if task is None else task
    check(all(0 <= row < len(codes) for row in rows), f"rows are {list(rows)!r}; expected numbers "
          f"from 0 to {len(codes) - 1}, of these codes")
    split, numbers = str(codes.meta["split"]), codes.instances()[list(rows)].tolist()
    batch = instances(task, split, numbers, seed=int(codes.meta["seed"]), device=device)
    drawn, known = task.labels(batch), codes.labels.iloc[list(rows)]
    same = np.logical_and.reduce([_equal(drawn[name], known[name])
                                  for name in drawn.columns.intersection(known.columns)])
    check(bool(np.all(same)), f"instance {rows[int(np.argmin(same))]} cannot be shown: the problem "
          "that the task draws now has other labels than these codes, which were extracted on "
          "another device or by another version", ArtifactError)
    return _cards(task, batch, numbers, model, size)


def task_of(codes: LatentCodes) -> Task:
    """Return the task that codes were drawn from; `ConfigError` for codes of prompts."""
    check("task" in codes.meta, "these codes do not say which task they come from; expected codes "
          "that `extract` has read out of a run")
    return as_task(task_from_dict(codes.meta["task"]))


def _cards(
    task: Task, batch: Batch, numbers: Sequence[int], model: HookedTransformer | None, size: Size
) -> list[ProblemCard]:
    check_choice("size", size, ("small", "full"))
    given: list[Answer] = [() for _ in numbers]
    if model is not None:
        place = next(model.parameters()).device
        with torch.inference_mode():
            logits = model(batch.inputs.to(place))
            given = task.format_answers(task.answers(logits, batch.targets.to(place)), batch)
    target = task.format_answers(batch.targets, batch)
    return [ProblemCard(
        int(number),
        task.sketch(batch, i) if size == "small" else task.render(batch, i, "html"),
        given[i], target[i]) for i, number in enumerate(numbers)]


def _equal(a: pd.Series, b: pd.Series) -> np.ndarray:
    """Return where two columns are the same, measurements up to what devices differ by."""
    ours, theirs = a.to_numpy(), b.to_numpy()
    if pd.api.types.is_float_dtype(a) and pd.api.types.is_float_dtype(b):
        return np.isclose(ours, theirs, atol=1e-5)
    return np.asarray(ours == theirs, dtype=bool)
