"""The outcome of `check_model`: one number per question and layer, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from matplotlib.patches import Patch

from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import TableResult

READING = "extract, decode"
RESIDUAL = "residual streams"
WRITING = "intervene"
RENORMALIZING = "renormalize"
GENERATING = "value_network"
VERBS: tuple[str, ...] = (READING, RESIDUAL, WRITING, RENORMALIZING, GENERATING)
"""What a user does with a model."""
TOLERANCES: Mapping[str, float] = {"float64": 1e-6, "float32": 1e-4}
"""Largest difference over the largest number compared. The bridge and `transformers` add the same
products in another order: over all architectures of docs/architectures.md that gave at most 1e-6 in
float32. In float64 it gives 1e-15 where all is float64, and up to 4e-7 where an architecture
computes its norms, its rotations or its softmax in float32 whatever its weights are."""
ALL = "all"
"""What stands for a layer where a number is of the whole model."""
SUPPORTED = "SUPPORTED"
COLORS = {"holds": PALETTE[0], "fails": PALETTE[3], "not compared": GREY}
NUMBERS = 16
"""Layers up to which the numbers are written into their cells."""


@dataclass(frozen=True)
class Question:
    """One thing that has to hold.

    asks     the question
    verbs    what cannot be trusted where the answer is no
    exact    whether nothing may differ at all, rather than no more than rounding
    changes  whether the number has to be above the tolerance, not below
    """

    asks: str
    verbs: tuple[str, ...]
    exact: bool = False
    changes: bool = False

    def bound(self, tolerance: float) -> float:
        return 0.0 if self.exact else tolerance

    def holds(self, value: float, tolerance: float) -> bool:
        bound = self.bound(tolerance)
        # False for NaN; a change that is not finite breaks the model.
        return bound < value < float("inf") if self.changes else value <= bound


QUESTIONS: Mapping[str, Question] = {
    "logits": Question("are the logits those of transformers?", VERBS),
    "padding": Question("and of prompts of several lengths in one batch?", (READING, RESIDUAL)),
    "residual": Question("is hook_resid_pre the hidden state of transformers?", (RESIDUAL,)),
    "codes": Question("are the codes the attention weights of transformers?", VERBS),
    "rows": Question("do the codes of a query sum to 1?", (RENORMALIZING,)),
    "masked": Question("are codes of later keys zero?", VERBS, exact=True),
    "values": Question("do codes times values give z?", (GENERATING,)),
    "value networks": Question("does sum_k W_qk x_k + b_O give attention's output?",
                               (GENERATING,)),
    "identity": Question("do codes written back leave every bit of the logits?",
                         (WRITING, RENORMALIZING), exact=True),
    "patch": Question("do random codes change the logits?", (WRITING, RENORMALIZING),
                      changes=True),
}
"""Every question by its name, in the order in which they are asked."""


@dataclass(frozen=True, repr=False)
class ModelCheckResult(TableResult):
    """Does a bridge compute, show and take what the model does?

    table     one row per question and layer (`all`: of the whole model): `value`, the worst of all
              prompts, which has to be at most `bound` (above it for `patch`); `outcome`: `holds`,
              `fails` or `not compared`; `note`, why there is no number. Numbers are differences
              over the largest of the numbers compared; of `rows` and `masked` they are codes.
              0 for `identity` says that all bits are equal
    settings  everything else that determines the numbers
    """

    FORMAT = "latentcode.model_checks"
    SHOWS = "the worst layer of every question"
    COLUMNS: ClassVar = {"table": ("check", "layer", "value", "bound", "outcome", "note")}

    table: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the questions whose answer is no in some layer."""
        fails = set(self.table.loc[self.table["outcome"] == "fails", "check"])
        return tuple(name for name in QUESTIONS if name in fails)

    @property
    def supported(self) -> bool:
        """Whether every answer is yes, that about the codes of every layer included."""
        return not self.failed and not self._codes_unseen

    @property
    def _codes_unseen(self) -> bool:
        codes = self.table.loc[self.table["check"] == "codes", "outcome"]
        return codes.empty or "not compared" in set(codes)

    @property
    def trusted(self) -> dict[str, bool]:
        """What a user does with a model -> whether no answer speaks against it."""
        return {verb: all(verb not in QUESTIONS[name].verbs for name in self.failed)
                for verb in VERBS}

    @property
    def verdict(self) -> str:
        """`SUPPORTED`, or what fails or was not seen, and what can be used, in one line."""
        if self.supported:
            return SUPPORTED
        failing = "; ".join(f"{row.check} ({_told(row)})" for row in self.worst().itertuples()
                            if row.outcome == "fails")
        if not failing:
            return ("NOT SHOWN: codes were not compared in every layer. Nothing that was compared "
                    "fails.")
        left = [verb for verb, trusted in self.trusted.items() if trusted]
        return (f"NOT SUPPORTED in full: {failing}. "
                + (f"Nothing speaks against {', '.join(left)}." if left else
                   "Nothing is left to be trusted."))

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = [f"{self.settings['model']} ({self.settings['architecture']}, "
                 f"{self.settings['dtype']}): {self.verdict}"]
        others: Mapping[str, str] = self.settings.get("others", {})
        if others:
            notes.append(f"A hybrid: {', '.join(sorted(set(others.values())))} in layers "
                         f"{', '.join(others)}, which have no codes; checked are the others.")
        notes += [f"Attention has a gate ({function}): a value network needs it beside the code "
                  "(latentcode.models.gates)." for function in self.settings.get("gates", ())]
        longest, window = max(self.settings["lengths"]), self.settings["sliding_window"]
        if window and window >= longest:
            notes.append(f"The sliding window has {window} tokens and the longest prompt {longest}:"
                         " what the window masks was not seen; give longer prompts.")
        notes += [f"Not compared: {row.check}, as {row.note}." for row in self.worst().itertuples()
                  if row.outcome == "not compared"]
        return tuple(notes)

    def worst(self) -> pd.DataFrame:
        """Return the row of the worst layer of every question, what fails before what holds."""
        rows = []
        for name, block in self.table.groupby("check", sort=False):
            sign = -1.0 if QUESTIONS[str(name)].changes else 1.0
            order = block.assign(fine=block["outcome"] != "fails",
                                 size=sign * block["value"].fillna(sign * float("inf")))
            rows.append(order.sort_values(["fine", "size"], ascending=[True, False]).index[0])
        return self.table.loc[rows].fillna({"note": ""})

    def summary(self) -> pd.DataFrame:
        """Return the worst layer of every question, and what cannot be trusted where it fails."""
        worst = self.worst()
        return pd.DataFrame({
            "check": worst["check"], "asks": [QUESTIONS[name].asks for name in worst["check"]],
            "outcome": worst["outcome"],
            "value": [_number(value) for value in worst["value"]],
            "bound": [("> " if QUESTIONS[name].changes else "<= ") + _number(bound)
                      for name, bound in zip(worst["check"], worst["bound"], strict=True)],
            "layer": worst["layer"],
            "not to be trusted": [", ".join(QUESTIONS[name].verbs) if outcome == "fails" else ""
                                  for name, outcome in zip(worst["check"], worst["outcome"],
                                                           strict=True)],
        }).reset_index(drop=True)

    def figure(self) -> Figure:
        """Return the questions down and the layers across: what holds, what fails, by how much."""
        return checks_figure(self.table)


def _told(row: Any) -> str:
    if pd.isna(row.value):
        return str(row.note)
    return f"{_number(row.value)} " + ("in all" if row.layer == ALL else f"in layer {row.layer}")


def _number(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.2g}"


def checks_figure(table: pd.DataFrame) -> Figure:
    """Return a cell per question and layer of `ModelCheckResult.table`, with its number."""
    checks, layers = list(table["check"].unique()), list(table["layer"].unique())
    layers = sorted(layers, key=lambda layer: int(layer) if layer.isdigit() else -1)
    width = min(0.62 * len(layers), 12.0) + 1.6
    with panels(1, 1, width, 0.24 * len(checks) + 1.0) as (figure, grid):
        axes = grid[0, 0]
        axes.grid(False)
        for check, layer, outcome, value in zip(
                *(table[name] for name in ("check", "layer", "outcome", "value")), strict=True):
            x, y = layers.index(layer), checks.index(check)
            axes.barh(y, 0.94, 0.9, x - 0.47, color=COLORS[outcome])
            if len(layers) <= NUMBERS and pd.notna(value):
                axes.text(x, y, f"{value:.0e}" if value else "0", ha="center", va="center",
                          fontsize=6.5, color="white")
        step = max(1, len(layers) // NUMBERS)
        axes.set_xticks(range(0, len(layers), step), layers[::step])
        axes.set_yticks(range(len(checks)), checks)
        axes.set(xlim=(-0.5, len(layers) - 0.5), ylim=(len(checks) - 0.5, -0.5), xlabel="layer")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.legend(handles=[Patch(color=COLORS[name], label=name) for name in COLORS
                               if name in set(table["outcome"])],
                      loc="outside upper center", ncols=3)
    return figure
