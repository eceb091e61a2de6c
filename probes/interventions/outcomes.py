"""What one problem, or many, answer after something was written into their codes, with controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from latentcode.figures.style import Figure
from latentcode.metrics import IN_WORDS
from latentcode.probes.common.results import with_interval
from latentcode.probes.common.statistics import mean_and_interval
from latentcode.probes.interventions.intervention import class_figure
from latentcode.probes.interventions.patch import Added, Patch
from latentcode.tasks.counterfactuals import OTHERS, ChosenPairs

ANSWERS: dict[str, str] = {"base": "A(x)", "operation": "B(x)", "operands": "A(x')",
                           "answer": "B(x')"}
"""The answer of each class, of operations A and B (the source's) and operands x and x' (its)."""
IN_SHORT: dict[str, str] = {"control": "same constituents", "unrelated": "other problems",
                            "random": "random codes"}
"""Controls of a patch, for people."""
CONTRAST = {"operation": "answer", "answer": "operation", "operands": "answer"}
"""Of which other class an answer of one might have been, had something else arrived."""
LEFT_OUT: dict[str, str] = {
    "wrong": "that the model answers wrongly",
    "alike": "without a natural source whose answers can be told apart",
    "unsolved": "whose sources the model answers wrongly",
    "own": "whose own codes would be written",
}
"""Why instances do not count, for people."""
N_BOOTSTRAP = 1_000


@dataclass(frozen=True)
class Ask:
    """A patch, and the base and source of one minimal pair.

    patch      what is put where: one patch, or several that are put in the same pass
    instance   the base's number, the row of its codes in `LatentCodes`
    target     the constituent that the source has in place of one of the base's own
    which      which of these that is: a response token of SRAVEN, a term of a function (from 0)
    other      the number of another instance that is the source in place of the minimal pair's
    """

    patch: Added
    instance: int
    target: str
    which: int = 0
    other: int | None = None

    @property
    def first(self) -> Patch:
        """The patch whose source defines the expected answer: the first that has one, or of all."""
        parts = self.patch.parts
        return next((part for part in parts if part.kind.source not in ("", "bases")), parts[0])

    @property
    def named(self) -> str:
        """The name of the patch in tables."""
        return str(self.patch.row()["patch"])

    @property
    def of_source(self) -> bool:
        """Whether the activations of a source are put that is made for the base."""
        kind = self.first.kind
        return self.other is None and kind.source not in ("", "bases") and not kind.control

    @property
    def source(self) -> str:
        """The batch of `MinimalPairs` that is put; that of the minimal pair where it is none."""
        source = self.first.kind.source
        return source if source in OTHERS else "sources"

    @property
    def measured(self) -> tuple[str, ...]:
        """The sites of which means are put."""
        return tuple(dict.fromkeys(site for part in self.patch.parts
                                   if part.kind.needs == "means" for site in part.sites))

    @property
    def key(self) -> int | None:
        """The key whose code is shown, the first that is written; None: the response itself."""
        keys = self.first.keys
        return keys[0] if isinstance(keys, tuple) else None

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of answers that what is put can bring, of `ANSWERS`.

        What comes from no source is taken for the target's, on the operands of the base.
        """
        differs = self.source if self.source in OTHERS else "operation"
        return ("base", *(name for name in ("operation", "operands") if name in differs),
                *(["answer"] if "operation+operands" in differs else []))


def answer_of(output: np.ndarray) -> float:
    """Return the answer of an output [n]: the most probable symbol, or the number itself."""
    return float(output.argmax()) if len(output) > 1 else float(output[0])


def answer_text(answer: float, task: ChosenPairs) -> str:
    """Return an answer as people write it: a symbol, its number where it has no name, or a number.
    """
    if not task.symbolic:
        return f"{answer:.3f}"
    return task.symbols[int(answer)] if task.symbols else f"{answer:.0f}"


@dataclass(frozen=True, repr=False)
class BenchOutcome:
    """What became of one answer.

    ask       what was put where, and for which base and source
    task      the pairs, which say what an answer is
    base_label  the constituent that the target takes the place of
    answers   what each constituent would answer in place of `base_label`; NaN where that is not
              defined
    counts    whether the target's answer is defined and differs from the right one
    source_answer, source_right  what the model answers to the source itself, and whether that is
              right; of what is written, or (where it is no source's) of the minimal pair
    candidates  class -> its answer, those of `CLASSES` that what is written can bring; empty where
              it is no source's, or where one of the answers is not defined
    natural   whether the task could have drawn the minimal pair, and the source that is written
    before    float [n], probabilities of the symbols or (n = 1) the predicted number
    outputs   float [rows, n], the same after each patch of `table`
    table     one row per patch and draw: `patch` (the first row is what was asked for, the others
              are controls), `draw` and `answer`
    codes     `layer`, `head`, `before`, `after`: the code a[:, q, k] of the response q and itself
              as the key k, or the first of the keys that alone are written
    exact     whether its own codes, written back, leave all logits as they are, bit for bit
    """

    ask: Ask
    task: ChosenPairs
    base_label: str
    answers: Mapping[str, float]
    counts: bool
    source_answer: float
    source_right: bool
    candidates: Mapping[str, float]
    natural: bool
    before: np.ndarray
    outputs: np.ndarray
    table: pd.DataFrame
    codes: pd.DataFrame
    exact: bool

    @property
    def after(self) -> np.ndarray:
        """The output after the patch that was asked for, float [n]."""
        return self.outputs[0]

    @property
    def answer_before(self) -> float:
        return answer_of(self.before)

    @property
    def answer_after(self) -> float:
        return answer_of(self.after)

    @property
    def truth(self) -> float:
        """The right answer."""
        return self.answers[self.base_label]

    @property
    def target_answer(self) -> float:
        """What the target would answer; NaN where that is not defined."""
        return self.answers[self.ask.target]

    @property
    def telling(self) -> bool:
        """Whether the answer can become the target's: it differs, and is not the model's before."""
        return self.counts and not self.alike(self.answer_before, self.target_answer)

    def alike(self, answer: float, other: float) -> bool:
        """Return whether two answers are not told apart."""
        return abs(answer - other) <= self.task.least_difference / 2

    def owners(self, answer: float) -> list[str]:
        """Return the constituents that would give an answer, base and target first."""
        order = (self.base_label, self.ask.target)
        return sorted((name for name, value in self.answers.items() if value == answer),
                      key=lambda name: (*order, name).index(name))

    def written(self, answer: float) -> str:
        """Return an answer as people write it."""
        return answer_text(answer, self.task)

    @property
    def known(self) -> Mapping[str, float]:
        """The answers that can come, by class: `candidates`, or those of base and target."""
        both = {"base": self.truth, "operation": self.target_answer}
        return self.candidates or {
            name: answer for name, answer in both.items() if not np.isnan(answer)}

    def classes_of(self, answer: float) -> list[str]:
        """Return the classes that an answer is of: several where they are not told apart."""
        return [name for name, value in self.known.items() if self.alike(answer, value)] or ["else"]

    @property
    def classes(self) -> list[str]:
        """The classes that the answer is of."""
        return self.classes_of(self.answer_after)

    def drawn(self, name: str) -> dict[str, int]:
        """Return how many draws of a patch gave an answer of each class, of these the first."""
        classes = [self.classes_of(answer)[0]
                   for answer in self.table.loc[self.table["patch"] == name, "answer"]]
        return {name: classes.count(name) for name in (*self.known, "else")}

    @property
    def stays(self) -> bool:
        """Whether the answer is the one before, or of its class and not told apart from it."""
        return (self.alike(self.answer_after, self.answer_before)
                and self.classes == self.classes_of(self.answer_before))

    def in_words(self) -> dict[str, str]:
        """Return the name of each class's answer in a sentence."""
        first, second = ((f"{self.base_label}'s answer", f"{self.ask.target}'s answer")
                         if self.task.whole else ("the answer of this problem's operation",
                                                  "the answer of the source's operation"))
        return {**IN_WORDS, "operation": f"{second} on this problem's operands",
                "operands": f"{first} on the source's operands"}

    def in_short(self) -> dict[str, str]:
        """Return the same for a chart: here are this problem's operands, there the source's."""
        ours, theirs = ((self.base_label, self.ask.target) if self.task.whole
                        else ("own operation", "source's operation"))
        return {"base": "problem's own", "operation": f"{theirs} here", "operands": f"{ours} there",
                "answer": "source's own", "else": "none of these"}

    def sentence(self) -> str:
        """Return what became of the answer, and whose it is, in one sentence."""
        names, known, classes = self.in_words(), self.known, self.classes
        value, name = self.written(self.answer_after), classes[0]
        several = " and ".join(names[name] for name in classes)
        if self.stays:
            before = "" if self.task.symbolic else f" ({self.written(self.answer_before)} before)"
            same = " are the same here" if len(classes) > 1 else ""
            return f"The answer stays {value}{before}: " + (
                "wrong, as it was." if name == "else" else f"{several}{same}.")
        if self.ask.other is not None and self.alike(self.answer_after, self.source_answer):
            return f"It gives {value}, what the model answers to the other problem."
        if len(classes) > 1:
            return f"It gives {value}: {several} are not told apart here."
        if name == "else":
            return f"It gives {value}, none of the answers that could come."
        exactly = "" if self.task.symbolic else f" (exactly {self.written(known[name])})"
        gives = f"It gives {names[name]}, {value}{exactly}"
        if name == "base":
            return f"{gives}, the right one."
        if name == "operation" and self.ask.of_source and "operands" not in self.ask.source:
            return f"{gives}. The source has the same operands: it is the source's own answer, too."
        other = CONTRAST[name] if CONTRAST[name] in known else "base"
        # The sentence has named an answer before.
        contrast = names[other].replace("the answer of", "that of").replace("'s answer", "'s")
        return f"{gives}, not {contrast.removesuffix(' answer')}, {self.written(known[other])}."

    def caveats(self) -> list[str]:
        """Return what a reader must know of this instance, one sentence each."""
        notes, task = [], self.task
        target, names = self.ask.target, self.in_words()
        if task.symbolic and self.answer_before != self.truth:
            notes.append(f"The model is wrong on this instance: {self.written(self.truth)} is "
                         "right.")
        if not self.counts:
            reason = ("is not defined" if np.isnan(self.target_answer) else
                      "is also the right one" if task.symbolic else "hardly differs")
            notes.append(f"The answer of {target} {reason} on this instance: it cannot show a "
                         "flip.")
        elif not self.telling:
            notes.append(f"The model already gives {target}'s answer before anything is written: "
                         "this instance cannot show a flip, and its controls are left out.")
        elif not self.source_right:
            notes.append(f"The model answers {self.written(self.source_answer)} to the source "
                         "itself, which is wrong: its codes need not flip the answer.")
        if any(b - a <= task.least_difference for a, b in pairwise(
                sorted(self.candidates.values()))):
            known = "; ".join(f"{names[name]}: {self.written(answer)}"
                              for name, answer in self.known.items())
            notes.append("Some of the answers that could come are the same, or hardly differ "
                         f"({known}): they do not tell whose the model's is.")
        if self.ask.source in OTHERS and not self.candidates:
            notes.append(f"An answer of {self.base_label} or {target} to other operands is not "
                         "defined here: whose answer it is cannot be told.")
        if not self.natural:
            notes.append(f"The task draws no problem with these operands under {self.base_label} "
                         f"and under {target}: a source that is not natural may be answered "
                         "rightly by luck.")
        return notes

    def summary(self) -> pd.DataFrame:
        """Return one row per patch: its answers, and how many draws gave one of each class."""
        rows = []
        for patch, block in self.table.groupby("patch", sort=False):
            drawn = [*map(self.written, sorted(set(block["answer"])))]
            rows.append({"patch": patch, "answers": (
                ", ".join(drawn) if self.task.symbolic else
                " to ".join(dict.fromkeys((drawn[0], drawn[-1])))), **self.drawn(str(patch))})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Return the classes of the draws as stacked bars, a bar per patch."""
        return bars(self.ask, pd.DataFrame([
            {"patch": patch, "class": name, "value": n / sum(drawn.values()),
             "n": sum(drawn.values())}
            for patch in self.table["patch"].unique()
            for drawn in [self.drawn(patch)] for name, n in drawn.items()]))

    def __repr__(self) -> str:
        ask = self.ask
        source = f"instance {ask.other}" if ask.other is not None else f"{ask.target} in its place"
        return as_text(self, f"instance {ask.instance}, {self.base_label} ({ask.which}), source "
                             f"{source}\n{ask.patch}")

    def _repr_html_(self) -> str:
        return as_html(self)


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
        """The number of instances that count."""
        return self.n_seen - sum(self.left_out.values())

    @property
    def patches(self) -> tuple[str, ...]:
        """What was asked for, then its controls."""
        return (self.ask.named, *IN_SHORT)

    def rates(self) -> pd.DataFrame:
        """Return how often an answer is of each class, one row per patch and class.

        `patch`, `class`, `value`, its 95 % interval `low`, `high` clustered by combination (NaN for
        a single one), `n`, `n_combinations`. All patches are those of the same instances.
        """
        names = [*self.classes, "else"]
        answers = self.table.pivot(index=["number", "combination"], columns="patch", values="class")
        hits = answers.reindex(columns=list(self.patches)).to_numpy()[..., None] == np.array(names)
        value, low, high, n_combinations = mean_and_interval(
            hits.astype(np.float64), answers.index.get_level_values("combination").to_numpy(),
            N_BOOTSTRAP, self.seed)  # [patch, class]
        return pd.DataFrame(
            {"value": value.ravel(), "low": low.ravel(), "high": high.ravel(), "n": len(answers),
             "n_combinations": n_combinations},
            pd.MultiIndex.from_product([self.patches, names], names=["patch", "class"])
        ).reset_index()

    def sentence(self) -> str:
        """Return how often the answer stays, and what it mostly becomes, beside the controls."""
        if not self.n_counted:
            return f"None of {self.n_seen} instances counts."
        rates: dict[Any, dict[Any, float]] = self.rates().set_index(["patch", "class"])[
            ["value", "low", "high"]].to_dict("index")

        def rate(patch: str, name: str) -> str:
            value, low, high = (100 * number for number in rates[patch, name].values())
            return f"{value:.0f} %" + ("" if np.isnan(low) else f" [{low:.0f}, {high:.0f}]")

        patch, others = self.ask.named, self.classes[1:]
        sentence = (f"Over {self.n_counted} problems the answer stays the problem's own in "
                    f"{rate(patch, 'base')}")
        name = "base"
        if others:
            name = max(others, key=lambda name: rates[patch, name]["value"])
            meant = IN_WORDS[name]
            if not self.ask.of_source:
                meant = "the target's answer"
            elif "operands" not in self.ask.source and name == "operation":
                # Its operands are the base's: B(x) is what it answers itself.
                meant = "the source's answer (its operation, or a copy: not told apart)"
            sentence += (f" and {'most often ' if len(others) > 1 else ''}becomes {meant}, in "
                         f"{rate(patch, name)}")
        *first, last = (f"{rate(patch, name)} ({text})" for patch, text in IN_SHORT.items())
        return f"{sentence}; controls bring the same in {', '.join(first)} and {last}."

    def caveats(self) -> list[str]:
        """Return what a reader must know of these numbers, one sentence each."""
        left = ", ".join(f"{count} {LEFT_OUT[reason]}"
                         for reason, count in self.left_out.items() if count)
        notes = [f"{self.n_counted} of {self.n_seen} instances count"
                 + (f"; left out are {left}." if left else ".")]
        n_combinations = self.table["combination"].nunique()
        if n_combinations > 1:
            notes.append(f"In brackets 95 % intervals, clustered by the {n_combinations} "
                         "combinations of the instances.")
        if self.least:
            notes.append("An answer is of a class where it lies within "
                         f"{self.least / 2:g} of that class's.")
        if not self.exact:
            notes.append("Own codes, written back, change the output: do not trust these numbers.")
        return notes

    def summary(self) -> pd.DataFrame:
        """Return one row per patch, and `value [low, high]` by class."""
        rates = self.rates()
        return rates.assign(cell=[*map(with_interval, rates.itertuples())]).pivot(
            index="patch", columns="class", values="cell").reindex(
            index=list(self.patches), columns=[*self.classes, "else"]).reset_index(
            ).rename_axis(columns=None)

    def figure(self) -> Figure:
        """Return the classes as stacked bars, a bar per patch."""
        return bars(self.ask, self.rates())

    def __repr__(self) -> str:
        return as_text(self, str(self.ask.patch))

    def _repr_html_(self) -> str:
        return as_html(self)


def bars(ask: Ask, rates: pd.DataFrame) -> Figure:
    """Return `patch`, `class`, `value` and `n` as stacked bars, a bar per patch."""
    place = {name: value for name, value in ask.patch.row().items() if name != "patch"}
    return class_figure(rates.rename(columns={"class": "metric"}).assign(**place))


def as_text(outcome: BenchOutcome | Replication, patched: str) -> str:
    """Return what was patched, what came of it, the caveats and the summary."""
    return "\n".join([f"{type(outcome).__name__}: {patched}", outcome.sentence(),
                      *outcome.caveats(), "", outcome.summary().to_string(index=False)])


def as_html(outcome: BenchOutcome | Replication) -> str:
    """Return the same for a notebook, with the figure."""
    notes = "".join(f"<p>{escape(note)}</p>" for note in outcome.caveats())
    return (f"<b>{escape(outcome.sentence())}</b>{notes}{outcome.summary().to_html(index=False)}"
            f"{outcome.figure().to_html(outcome.sentence())}")
