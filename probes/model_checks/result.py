"""The outcome of `check_model`: one number per question and layer, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.figures.style import Figure
from latentcode.probes.common.results import TableResult
from latentcode.probes.model_checks.figure import checks_figure
from latentcode.probes.model_checks.questions import QUESTIONS, VERBS

ALL = "all"
"""What stands for a layer where a number is of the whole model."""
SUPPORTED = "SUPPORTED"


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
