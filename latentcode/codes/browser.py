"""One problem at a time beside its code, to look through in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentcode.codes.cards import cards_of_codes, task_of
from latentcode.errors import LatentCodeError, check
from latentcode.figures.text import bars_svg
from latentcode.runs import Run
from latentcode.runs.run import load_run

if TYPE_CHECKING:
    from ipywidgets import VBox

    from latentcode.codes import LatentCodes
    from latentcode.models.transformer import HookedTransformer
    from latentcode.tasks import Task

WIDGET = "application/vnd.jupyter.widget-view+json"
"""The type under which a notebook is told of a widget."""


@dataclass(eq=False, repr=False)
class CodeBrowser:
    """One problem and its code a[:, q, k]; a notebook shows them, with controls where it can.

    codes     whose
    model     who answers the problems; None: nobody
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
        check(type(self.instance) is int and 0 <= self.instance < len(self.codes),
              f"instance is {self.instance!r}; expected a number from 0 to {len(self.codes) - 1}")
        self.bars()  # names what is not there

    def bars(self) -> dict[str, np.ndarray]:
        """Return the code, the mean code of its label, and the mean of all, by name: each [H].

        Where no score of the layer and pair is negative, the mean of all is subtracted from the
        other two and left out: most of such a mean code is common to all.
        """
        points = self.codes.select(layer=self.layer, pair=self.pair)
        found, mean = {f"problem {self.instance}": points[self.instance]}, points.mean(0)
        if self.label is not None:
            values = self.codes.label(self.label, self.pair).to_numpy()
            mine = values[self.instance]
            found[f"mean of {self.label} {mine}"] = points[values == mine].mean(0)
        if self.is_centred:
            return {name: code - mean for name, code in found.items()}
        return {**found, "mean of all": mean}

    @property
    def is_centred(self) -> bool:
        """Whether `bars` are differences from the mean code of all."""
        return bool(self.codes.select(layer=self.layer, pair=self.pair).min() >= 0)

    @cached_property
    def _task(self) -> Task:
        return task_of(self.codes)

    def _card(self) -> str:
        """Return the problem and its answers; its labels where it cannot be drawn again."""
        try:
            card = cards_of_codes(self.codes, [self.instance], model=self.model, task=self._task)[0]
        except LatentCodeError as error:
            labels = self.codes.labels.iloc[[self.instance]].T.to_html(header=False)
            return f"<div>{escape(str(error))}</div>{labels}"
        return f'{card.html}<div style="margin-top:4px">{card.answer}</div>'

    def _repr_html_(self) -> str:
        quantity = "score less the mean of all" if self.is_centred else "score"
        return (
            '<div style="display:flex;flex-wrap:wrap;gap:8px 24px;color:inherit;'
            'font:12px system-ui,sans-serif"><div style="flex:0 1 260px"><div '
            f'style="margin-bottom:4px"><b>Problem {self.instance}</b></div>{self._card()}</div>'
            f'<div style="flex:0 1 400px"><div style="margin-bottom:4px"><b>Its code</b>, layer '
            f"{self.layer}, {escape(self.pair)}</div>{bars_svg(self.bars(), quantity)}</div></div>")

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
    mine = codes.meta.get("run_id")
    check(mine == run.id, f"run {run.name} has the id {run.id}; expected {mine}, of run "
          f"{codes.meta.get('run')}, which these codes were extracted from")
    check(not codes.meta.get("untrained"), "these are codes of the untrained model, which has no "
          "answers; expected no run")
    return run.load_model(codes.meta.get("step"))
