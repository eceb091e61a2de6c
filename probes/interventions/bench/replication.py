"""A replication: whose answers came out over many instances, beside the same for controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd

from latentcode.answers import CLASSES, IN_WORDS
from latentcode.figures.style import Figure
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.common.results import with_interval
from latentcode.probes.interventions.bench.ask import Ask
from latentcode.probes.interventions.class_figure import class_figure

LEFT_OUT: dict[str, str] = {
    "wrong": "that the model answers wrongly",
    "alike": "without a natural source whose answers can be told apart",
    "unsolved": "whose sources the model answers wrongly",
    "own": "whose own codes would be written",
}
"""Which instances do not count, for people."""
N_BOOTSTRAP = 1_000
IN_SHORT = {"control": "same constituents", "unrelated": "other problems",
            "random": "random codes"}
"""The controls in a sentence."""


@dataclass(frozen=True, repr=False)
class Replication:
    """What became of the answers of many instances.

    ask       what was put where; its instance and target stand for any
    classes   whose answers can come out of it, those of `CLASSES`; all others are `else`
    table     one row per instance that counts and patch (what was asked for, then one draw of
              `control`, `unrelated` and `random`): `number`, `combination`, `base_label`,
              `source_label`, `patch`, `answer`, `class` and the answer of each class, `A(x)`
              and so on
    n_seen    instances that were looked at so far
    n         instances that were asked for
    left_out  reason (`LEFT_OUT`) -> how many of these do not count
    least     an answer is of a class where it lies within half of it of that class's
    exact     whether their own codes, written back, leave all logits as they are, bit for bit
    seed      of the bench, and of the intervals
    """

    ask: Ask
    classes: tuple[str, ...]
    table: pd.DataFrame
    n_seen: int
    n: int
    left_out: Mapping[str, int]
    least: float
    exact: bool
    seed: int

    @property
    def n_counted(self) -> int:
        """Return how many instances count."""
        return self.n_seen - sum(self.left_out.values())

    @property
    def patches(self) -> tuple[str, ...]:
        """Return what was asked for, then its controls."""
        return (self.ask.named, *IN_SHORT)

    def rates(self) -> pd.DataFrame:
        """How often is an answer of each class? One row per patch and class.

        `patch`, `class`, `value`, its 95 % interval `low`, `high` clustered by combination (NaN for
        a single one), `n`, `n_combinations`. All patches are those of the same instances.
        """
        rows = []
        names = [*self.classes, [*CLASSES][-1]]
        for patch in self.patches:
            block = self.table[self.table["patch"] == patch]
            hits = block["class"].to_numpy()[:, None] == np.array(names)
            means, low, high, n_combinations = mean_and_interval(
                hits.astype(np.float64), block["combination"].to_numpy(), N_BOOTSTRAP, self.seed)
            rows += [{"patch": patch, "class": name, "value": means[i], "low": low[i],
                      "high": high[i], "n": len(block), "n_combinations": n_combinations}
                     for i, name in enumerate(names)]
        return pd.DataFrame(rows)

    def sentence(self) -> str:
        """Does it replicate? One sentence: how often the answer stays, and what it mostly becomes.

        Beside the latter, how often the controls bring the same.
        """
        if not self.n_counted:
            return f"None of {self.n_seen} instances counts."
        rates = {(row["patch"], row["class"]): row
                 for row in self.rates().to_dict(orient="records")}
        what = self.ask.named

        def rate(patch: str, name: str) -> str:
            value, low, high = (100 * rates[patch, name][part] for part in ("value", "low", "high"))
            return f"{value:.0f} %" + ("" if np.isnan(low) else f" [{low:.0f}, {high:.0f}]")

        said = (f"Over {self.n_counted} problems the answer stays the problem's own in "
                f"{rate(what, 'base')}")
        others = [name for name in self.classes if name != "base"]
        name = max(others, key=lambda name: float(rates[what, name]["value"]), default="base")
        meant = IN_WORDS[name]
        if others:
            most = "" if len(others) == 1 else "most often "
            if not self.ask.of_source:
                meant = "the target's answer"
            elif "operands" not in self.ask.source and name == "operation":
                # Its operands are the base's: B(x) is what it answers itself.
                meant = "the source's answer (its operation, or a copy: not told apart)"
            said += f" and {most}becomes {meant}, in {rate(what, name)}"
        controls = [f"{rate(patch, name)} ({text})" for patch, text in IN_SHORT.items()]
        return f"{said}; controls bring the same in {', '.join(controls[:-1])} and {controls[-1]}."

    def notes(self) -> list[str]:
        """Return what a reader of these numbers must know, one sentence each."""
        left = [f"{count} {LEFT_OUT[reason]}"
                for reason, count in self.left_out.items() if count]
        notes = [f"{self.n_counted} of {self.n_seen} instances count"
                 + (f"; left out are {', '.join(left)}." if left else ".")]
        n_combinations = self.table["combination"].nunique()
        if n_combinations > 1:
            notes.append(f"In brackets 95 % intervals, clustered by the {n_combinations} "
                         "combinations of the instances.")
        elif self.n_counted:
            notes.append("All instances are of one combination: there is no interval.")
        if self.least:
            notes.append("An answer is of a class where it lies within "
                         f"{self.least / 2:g} of that class's.")
        ask = self.ask
        if ask.of_source and "operation" in ask.classes and "operands" not in ask.source:
            notes.append("The sources have the operands of their bases: operation and answer "
                         "are the same.")
        if not self.exact:
            notes.append("Own codes, written back, change the output: do not trust these numbers.")
        return notes

    def summary(self) -> pd.DataFrame:
        """Return one row per patch, and `value [low, high]` by class."""
        rates = self.rates()
        cells = [with_interval(row) for row in rates.itertuples()]
        return rates.assign(cell=cells).pivot(index="patch", columns="class", values="cell").loc[
            list(self.patches), list(dict.fromkeys(rates["class"]))].reset_index().rename_axis(
            columns=None)

    def figure(self) -> Figure:
        """Return the classes as stacked bars, a bar per patch."""
        place, rates = self.ask.patch.row(), self.rates().set_index(["patch", "class"])
        return class_figure(pd.DataFrame([
            {**place, "patch": patch, "metric": name, "n": self.n_counted,
             "value": rates["value"].get((patch, name), 0.0)}
            for patch in self.patches for name in CLASSES]))

    def __repr__(self) -> str:
        return "\n".join([f"Replication: {self.ask.patch}", self.sentence(), *self.notes(), "",
                          self.summary().to_string(index=False)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes())
        title = f"whose answers came out: {self.ask.first.kind.description}"
        figure = self.figure().to_html(title) if self.n_counted else ""
        return (f"<b>{escape(self.sentence())}</b>{notes}{self.summary().to_html(index=False)}"
                f"{figure}")
