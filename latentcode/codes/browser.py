"""Problems that codes come from: drawn as cards, and browsed beside their codes in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch

from latentcode.codes.reader import instances
from latentcode.config import task_from_dict
from latentcode.errors import ArtifactError, LatentCodeError, check, check_whole
from latentcode.runs import Run
from latentcode.runs.run import load_run
from latentcode.tasks import Batch, Task, as_task

if TYPE_CHECKING:
    from ipywidgets import VBox

    from latentcode.codes import LatentCodes
    from latentcode.config import TaskConfig
    from latentcode.models.transformer import HookedTransformer
    from latentcode.tasks import Task

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
    given     what the model answers, a symbol, a number or a text per target; empty without a model
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


def problem_cards(
    task: Task | TaskConfig, split: str, rows: Sequence[int], *,
    model: HookedTransformer | None = None, seed: int = 0, size: Size = "small",
    device: torch.device | str = "cpu",
) -> list[ProblemCard]:
    """Draw instances of a split again, and let a model answer all of them in one forward pass.

    rows    the numbers of the instances in their split, from 0
    model   None: nobody answers
    seed    that of the extraction
    size    "small" for a card of about 260 x 220 px, "full" as `Task.render` draws it
    device  where the codes were extracted, as a GPU draws other numbers from the same seed

    Raises what `instances` raises.
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
    task  default: made from what the codes say of it

    `ConfigError` for codes of prompts, which no task has drawn; `ArtifactError` where what is drawn
    has other labels than the codes: these come from another version of the task, or from a GPU,
    which draws other numbers.
    """
    task = task_of(codes) if task is None else task
    split, numbers = str(codes.meta["split"]), codes.instances()[list(rows)].tolist()
    batch = instances(task, split, numbers, seed=int(codes.meta["seed"]), device=device)
    drawn, known = task.labels(batch), codes.labels.iloc[list(rows)]
    same = np.ones(len(rows), dtype=bool)
    for name in drawn.columns.intersection(known.columns):
        a, b = drawn[name].to_numpy(), known[name].to_numpy()
        # Measurements differ by rounding among devices.
        same &= np.isclose(a, b, atol=1e-5) if a.dtype.kind == b.dtype.kind == "f" else a == b
    check(bool(same.all()), f"instance {rows[int(np.argmin(same))]} cannot be shown: the problem "
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


WIDGET = "application/vnd.jupyter.widget-view+json"
"""The type under which a notebook is told of a widget."""


@dataclass(eq=False, repr=False)
class CodeBrowser:
    """One problem and its code a[:, q, k]; a notebook shows them, with controls where it can.

    model     answers the problems; None: nobody does
    instance  the row of the codes
    layer, pair  which of its codes
    label     the label whose mean code stands beside it; None: no label
    """

    codes: LatentCodes
    model: HookedTransformer | None
    instance: int
    layer: int
    pair: str
    label: str | None

    def __post_init__(self) -> None:
        check_whole("instance", self.instance, 0, most=len(self.codes) - 1)
        self.means()  # raises for a layer, pair or label that there is not

    @property
    def is_centred(self) -> bool:
        """Whether `means` are differences from the mean code of all."""
        return bool(self.codes.select(layer=self.layer, pair=self.pair).min() >= 0)

    def means(self) -> pd.DataFrame:
        """Return the code, the mean code of its label, and the mean of all: a row of H scores each.

        Where no score of the layer and pair is negative, the mean of all is subtracted from the
        other two and left out: most of such a mean code is common to all.
        """
        points = self.codes.select(layer=self.layer, pair=self.pair)
        rows = {f"problem {self.instance}": points[self.instance]}
        if self.label is not None:
            values = self.codes.label(self.label, self.pair).to_numpy()
            value = values[self.instance]
            rows[f"mean of {self.label} {value}"] = points[values == value].mean(0)
        table = pd.DataFrame.from_dict(rows, orient="index")
        if self.is_centred:
            return table - points.mean(0)
        table.loc["mean of all"] = points.mean(0)
        return table

    def _card(self) -> str:
        """Return the problem and its answers; its labels where it cannot be drawn again."""
        try:
            card, = cards_of_codes(self.codes, [self.instance], model=self.model)
        except LatentCodeError as error:
            labels = self.codes.labels.iloc[[self.instance]].T.to_html(header=False)
            return f"<div>{escape(str(error))}</div>{labels}"
        return f'{card.html}<div style="margin-top:4px">{card.answer}</div>'

    def _repr_html_(self) -> str:
        from latentcode.figures.panels import mean_codes_figure

        drawn = mean_codes_figure(self.means(), f"layer {self.layer}, {self.pair}", (
            "score − mean of all" if self.is_centred else "score"))
        return (
            '<div style="display:flex;flex-wrap:wrap;gap:8px 24px;color:inherit;'
            'font:12px system-ui,sans-serif"><div style="flex:0 1 260px"><div '
            f'style="margin-bottom:4px"><b>Problem {self.instance}</b></div>{self._card()}</div>'
            f"<div>{drawn.to_html(f'code of problem {self.instance}, {self.pair}')}</div></div>")

    def controls(self) -> VBox:
        """Return a widget to choose instance, layer and pair with; what it shows follows.

        `ConfigError` without ipywidgets, which the extra `jupyter` brings.
        """
        check(find_spec("ipywidgets") is not None, "the controls need ipywidgets, which is not "
              "installed; expected latentcode with its extra: pip install 'latentcode[jupyter]'")
        from ipywidgets import HTML, BoundedIntText, Dropdown, HBox, VBox

        shown = HTML(self._repr_html_())
        chosen = {
            "instance": BoundedIntText(self.instance, min=0, max=len(self.codes) - 1,
                                       description="problem"),
            "layer": Dropdown(options=self.codes.layers, value=self.layer, description="layer"),
            "pair": Dropdown(options=[pair.name for pair in self.codes.pairs], value=self.pair,
                             description="pair")}

        def follow(change: Mapping[str, Any]) -> None:
            for name, control in chosen.items():
                setattr(self, name, control.value)
            try:
                shown.value = self._repr_html_()
            except LatentCodeError as error:  # such as a label that another pair does not have
                shown.value = escape(str(error))

        for control in chosen.values():
            control.observe(follow, "value")
        return VBox([HBox(list(chosen.values())), shown])

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> dict[str, Any]:
        still = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if find_spec("ipywidgets") is None:
            return still
        return still | {WIDGET: self.controls()._repr_mimebundle_()[WIDGET]}

    def __repr__(self) -> str:
        return (f"CodeBrowser(problem {self.instance} of {len(self.codes)}, layer {self.layer}, "
                f"{self.pair})")


def model_of(
    codes: LatentCodes, run: Run | str | Path | HookedTransformer | None
) -> HookedTransformer | None:
    """Return the model of a run, at the step that codes were extracted from.

    `ConfigError` for a run whose codes these are not, and for codes of the untrained model.
    """
    if run is None or not isinstance(run, Run | str | Path):
        return run
    run = load_run(run)
    run_id = codes.meta.get("run_id")
    check(run_id == run.id, f"run {run.name} has the id {run.id}; expected {run_id}, of run "
          f"{codes.meta.get('run')}, which these codes were extracted from")
    check(not codes.meta.get("untrained"), "these are codes of the untrained model, which has no "
          "answers; expected no run")
    return run.load_model(codes.meta.get("step"))
