"""What one problem, or many, answer after something was written into their codes, beside controls.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.metrics import CLASSES, IN_WORDS
from latentcode.probes.common.results import with_interval
from latentcode.probes.common.statistics import mean_and_interval
from latentcode.probes.interventions.patch import Added, Patch
from latentcode.probes.interventions.patches import Mean
from latentcode.probes.interventions.result import class_figure
from latentcode.tasks.counterfactuals import OTHERS

ANSWERS: dict[str, str] = {"base": "A(x)", "operation": "B(x)", "operands": "A(x')",
                           "answer": "B(x')"}
"""The answer of each class, of operations A and B (the source's) and operands x and x' (its)."""
CONTROLS: dict[str, str] = {
    "control": "same constituents, fresh values",
    "unrelated": "unrelated instances",
    "random": "random codes of equal norm",
    "identity": "its own codes",
}
"""What is put beside it, from which nothing should come, for people."""
LEFT_OUT: dict[str, str] = {
    "wrong": "that the model answers wrongly",
    "alike": "without a natural source whose answers can be told apart",
    "unsolved": "whose sources the model answers wrongly",
    "own": "whose own codes would be written",
}
"""Which instances do not count, for people."""
IN_SHORT = {"control": "same constituents", "unrelated": "other problems",
            "random": "random codes"}
"""The controls in a sentence."""
CONTRAST = {"operation": "answer", "answer": "operation", "operands": "answer"}
"""Of which other class an answer of one might have been, had something else arrived."""
N_BOOTSTRAP = 1_000
BEFORE, AFTER, TARGET = GREY, PALETTE[0], PALETTE[3]


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
        """The patch whose source defines the expected answer: the first that comes from one; else
        the first of all."""
        parts = self.patch.parts
        return next((part for part in parts if part.kind.source not in ("", "bases")), parts[0])

    @property
    def named(self) -> str:
        """What tables call what is put."""
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
                                   if part.kind.needs == Mean.needs for site in part.sites))

    @property
    def key(self) -> int | None:
        """The key whose code is shown, the first that is written alone; None: the response itself.
        """
        keys = self.first.keys
        return keys[0] if isinstance(keys, tuple) else None

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of answers that what is put can bring, of `ANSWERS`.

        What comes from no source is taken for the target's, on the operands of the base.
        """
        differs = self.source if self.source in OTHERS else "operation"
        needs = {"base": (), "operation": ("operation",), "operands": ("operands",),
                 "answer": ("operation", "operands")}
        return tuple(name for name, parts in needs.items()
                     if all(part in differs for part in parts))


@dataclass(frozen=True)
class Cells:
    """The codes a[:, q, k] of some queries q and keys k, numbers of tokens, in one layer."""

    layer: int
    queries: tuple[int, ...]
    keys: tuple[int, ...]


@dataclass(frozen=True)
class Answers:
    """What became of one answer when others in turn took the place of a problem's own codes.

    which    the constituent whose answer it is (`Ask`)
    truth    the right answer; NaN where it is not defined
    before   float [n], the probabilities of n symbols as the problem is; or the number (n = 1)
    outputs  float [N, n], the same with each of N
    least    numbers that are no farther apart are not told apart; 0 of symbols
    """

    which: int
    truth: float
    before: np.ndarray
    outputs: np.ndarray
    least: float

    def answer(self, row: int | None = None) -> float:
        """Return the answer with one of them; None: as the problem is."""
        return answer_of(self.before if row is None else self.outputs[row])

    def same(self, one: float, other: float) -> bool:
        """Whether two answers are the same, or not told apart."""
        return abs(one - other) <= self.least / 2

    def alike(self, row: int) -> list[int]:
        """Return the others with which the answer is that of one of them."""
        return [i for i in range(len(self.outputs))
                if i != row and self.same(self.answer(i), self.answer(row))]


def answer_of(output: np.ndarray) -> float:
    """Return the answer of an output [n]: the most probable symbol, or the number itself."""
    return float(output.argmax()) if len(output) > 1 else float(output[0])


def answer_text(answer: float, *, symbolic: bool, symbols: Sequence[str]) -> str:
    """Return an answer as people write it: a symbol, its number where it has no name, or a number.
    """
    if not symbolic:
        return f"{answer:.3f}"
    return symbols[int(answer)] if symbols else f"{answer:.0f}"


def is_target(answer: float, target: float, own: float, *, symbolic: bool) -> bool:
    """Whether an answer is the target's: the same symbol or, of numbers, nearer to it."""
    return answer == target if symbolic else abs(answer - target) < abs(answer - own)


def class_of(answer: float, known: Mapping[str, float], least: float) -> list[str]:
    """Return the classes that an answer is of: several where they are not told apart."""
    near = [name for name, value in known.items() if abs(answer - value) <= least / 2]
    return near or ["else"]


@dataclass(frozen=True, repr=False)
class BenchOutcome:
    """What became of one answer.

    ask       what was put where, and for which base and source
    base_label  the constituent that the target takes the place of
    symbolic  whether an answer is one of n symbols (SRAVEN), or a number (fuzzy logic)
    symbols   what people call these, where they are called anything but their number
    whole     whether a constituent is an operation, which a sentence calls by its name
    truth     the right answer
    answers   `constituent`, `answer` and `role` (base, target, or nothing): what each constituent
              would answer in place of `base_label`; NaN where that is not defined
    counts    whether the target's answer is defined and differs from the right one
    source_answer, source_right  what the model answers to the source itself, and whether that is
              right; of what is written, or (where it is no source's) of the minimal pair
    candidates  class -> its answer, those of `CLASSES` that what is written can bring; empty where
              it is no source's, or where one of the answers is not defined
    least     candidates that are no farther apart are not told apart
    natural   whether the task could have drawn the minimal pair, and the source that is written
    before    float [n], probabilities of the symbols or (n = 1) the predicted number
    outputs   float [rows, n], the same after each patch of `table`
    table     one row per patch and draw: `patch` (the first row is what was asked for, the others
              are controls), `draw`, `answer`, `kept` and `flipped` (1 or 0; NaN where it is not
              `telling`). Symbols are kept where they are those before, flipped where they are the
              target's; numbers are flipped where they lie nearer to the target's answer than to
              the right one, and kept otherwise
    codes     `layer`, `head`, `before`, `after`, `written`: the code a[:, q, k] of the response q
              and itself as the key k, or the first of the keys that alone are written
    exact     whether its own codes, written back, leave all logits as they are, bit for bit
    """

    ask: Ask
    base_label: str
    symbolic: bool
    symbols: tuple[str, ...]
    whole: bool
    truth: float
    answers: pd.DataFrame
    counts: bool
    source_answer: float
    source_right: bool
    candidates: Mapping[str, float]
    least: float
    natural: bool
    before: np.ndarray
    outputs: np.ndarray
    table: pd.DataFrame
    codes: pd.DataFrame
    exact: bool

    @property
    def after(self) -> np.ndarray:
        """Return the output after the patch that was asked for, float [n]."""
        return self.outputs[0]

    @property
    def answer_before(self) -> float:
        return answer_of(self.before)

    @property
    def answer_after(self) -> float:
        return answer_of(self.after)

    @property
    def target_answer(self) -> float:
        """Return what the target would answer; NaN where that is not defined."""
        return float(self.answers.loc[self.answers["role"] == "target", "answer"].iloc[0])

    def control(self, name: str) -> np.ndarray:
        """Return the outputs of all draws of a control, float [draws, n]."""
        return self.outputs[(self.table["patch"] == name).to_numpy()]

    def owners(self, answer: float) -> list[str]:
        """Return the constituents that would give an answer, base and target first."""
        rows = self.answers[self.answers["answer"] == answer]
        order = {"base": 0, "target": 1, "": 2}
        return list(rows.sort_values("role", key=lambda role: role.map(order), kind="stable")
                    ["constituent"])

    def written(self, answer: float) -> str:
        """Return an answer as people write it."""
        return answer_text(answer, symbolic=self.symbolic, symbols=self.symbols)

    @property
    def telling(self) -> bool:
        """Whether the answer can become the target's: it differs, and is not the model's before."""
        return self.counts and not is_target(
            self.answer_before, self.target_answer, self.truth, symbolic=self.symbolic)

    @property
    def known(self) -> Mapping[str, float]:
        """The answers that can come, by class: `candidates`, or those of base and target."""
        if self.candidates:
            return self.candidates
        both = {"base": self.truth, "operation": self.target_answer}
        return {name: answer for name, answer in both.items() if not np.isnan(answer)}

    @property
    def classes(self) -> list[str]:
        """The classes that the answer is of: several where they are not told apart."""
        return class_of(self.answer_after, self.known, self.least)

    @property
    def stays(self) -> bool:
        """Whether the answer is the one before: the same symbol, or a number of the same class that
        is no farther from it than `least` tells apart."""
        if self.symbolic:
            return self.answer_after == self.answer_before
        return (abs(self.answer_after - self.answer_before) <= self.least / 2
                and self.classes == class_of(self.answer_before, self.known, self.least))

    @property
    def of_another(self) -> bool:
        """Whether it gives what the model answers to another instance, whose codes were put."""
        return self.ask.other is not None and abs(
            self.answer_after - self.source_answer) <= self.least / 2

    def in_words(self) -> dict[str, str]:
        """Return what a sentence calls the answer of each class."""
        first, second = ((f"{self.base_label}'s answer", f"{self.ask.target}'s answer")
                         if self.whole else ("the answer of this problem's operation",
                                             "the answer of the source's operation"))
        return {"base": IN_WORDS["base"], "operation": f"{second} on this problem's operands",
                "operands": f"{first} on the source's operands", "answer": IN_WORDS["answer"],
                "else": IN_WORDS["else"]}

    def in_short(self) -> dict[str, str]:
        """Return the same for a chart: here are this problem's operands, there the source's."""
        ours, theirs = ((self.base_label, self.ask.target) if self.whole
                        else ("own operation", "source's operation"))
        return {"base": "problem's own", "operation": f"{theirs} here", "operands": f"{ours} there",
                "answer": "source's own", "else": "none of these"}

    def sentence(self) -> str:
        """What became of the answer? One sentence, which says whose it is."""
        names, known, classes = self.in_words(), self.known, self.classes
        value = self.written(self.answer_after)
        if self.stays:
            before = "" if self.symbolic else f" ({self.written(self.answer_before)} before)"
            whose = ("wrong, as it was" if classes == ["else"] else
                     " and ".join(names[name] for name in classes)
                     + (" are the same here" if len(classes) > 1 else ""))
            return f"The answer stays {value}{before}: {whose}."
        if self.of_another:
            return f"It gives {value}, what the model answers to the other problem."
        if len(classes) > 1:
            return (f"It gives {value}: {' and '.join(names[name] for name in classes)} are not "
                    "told apart here.")
        (name,) = classes
        if name == "else":
            every = [f"{names[one]}, {self.written(answer)}" for one, answer in known.items()]
            if len(every) < 3:
                return f"It gives {value}, which is not {', nor '.join(every)}."
            n = {3: "three", 4: "four"}[len(every)]
            return f"It gives {value}, none of the {n} answers that could come."
        gives = f"It gives {names[name]}, {value}"
        if not self.symbolic:
            gives += f" (exactly {self.written(known[name])})"
        if name == "base":
            return f"{gives}, the right one."
        if name == "operation" and self.ask.of_source and "operands" not in self.ask.source:
            return f"{gives}. The source has the same operands: it is the source's own answer, too."
        other = CONTRAST[name] if CONTRAST[name] in known else "base"
        # The sentence has named an answer before.
        contrast = {"base": "the problem's own", "answer": "the source's own"}.get(
            other, names[other].replace("the answer of", "that of").replace("'s answer", "'s"))
        return f"{gives}, not {contrast}, {self.written(known[other])}."

    def drawn(self, name: str) -> dict[str, int]:
        """Return how many draws of a patch gave an answer of each class, of these the first."""
        found = [class_of(answer, self.known, self.least)[0]
                 for answer in self.table.loc[self.table["patch"] == name, "answer"]]
        return {one: found.count(one) for one in (*self.known, "else")}

    def caveats(self) -> list[str]:
        """Return what a reader must know of this instance, one sentence each."""
        notes = []
        if self.symbolic and self.answer_before != self.truth:
            notes.append(f"The model is wrong on this instance: {self.written(self.truth)} is "
                         "right.")
        if not self.counts:
            reason = ("is not defined" if np.isnan(self.target_answer) else
                      "is also the right one" if self.symbolic else "hardly differs")
            notes.append(f"The answer of {self.ask.target} {reason} on this instance: it "
                         "cannot show a flip.")
        elif not self.telling:
            notes.append(f"The model already gives {self.ask.target}'s answer before anything is "
                         "written: this instance cannot show a flip, and its controls are left "
                         "out.")
        elif not self.source_right:
            notes.append(f"The model answers {self.written(self.source_answer)} to the source "
                         "itself, which is wrong: its codes need not flip the answer.")
        names = self.in_words()
        known = [f"{names[name]}: {self.written(answer)}" for name, answer in self.known.items()]
        answers = sorted(self.candidates.values())
        if any(b - a <= self.least for a, b in pairwise(answers)):
            notes.append("Some of the answers that could come are the same, or hardly differ "
                         f"({'; '.join(known)}): they do not tell whose the model's is.")
        if self.ask.source in OTHERS and not self.candidates:
            notes.append(f"An answer of {self.base_label} or {self.ask.target} to other operands "
                         "is not defined here: whose answer it is cannot be told.")
        if not self.natural:
            notes.append(f"The task draws no problem with these operands under {self.base_label} "
                         f"and under {self.ask.target}: a source that is not natural may be "
                         "answered rightly by luck.")
        return notes

    def summary(self) -> pd.DataFrame:
        """Return one row per patch: how often the answer was kept and flipped over its draws."""
        rows = []
        for name, block in self.table.groupby("patch", sort=False):
            drawn = sorted(set(block["answer"]))
            if not self.symbolic:
                drawn = list(dict.fromkeys([drawn[0], drawn[-1]]))
            rows.append({
                "patch": name, "draws": len(block),
                "answers": (", " if self.symbolic else " to ").join(map(self.written, drawn)),
                "kept": float(block["kept"].mean()), "flipped": float(block["flipped"].mean())})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Return the answer before and after, the controls beside it, and the response's codes."""
        return bench_figure(self)

    def __repr__(self) -> str:
        ask = self.ask
        source = f"instance {ask.other}" if ask.other is not None else f"{ask.target} in its place"
        return "\n".join([f"BenchOutcome: instance {ask.instance}, {self.base_label} "
                          f"({ask.which}), source {source}", str(ask.patch), self.sentence(),
                          *self.caveats(), "",
                          self.summary().to_string(index=False)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.caveats())
        return (f"<b>{escape(self.sentence())}</b>{notes}{self.summary().to_html(index=False)}"
                f"{self.figure().to_html('the answer before and after')}")


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


def bench_figure(outcome: BenchOutcome) -> Figure:
    """Return the picture of an outcome.

    Above, for symbols: the probability of each before, after, and after the controls (means), and
    under it the constituents that would answer it. For numbers: one line per patch, a mark per
    draw, beside the answers of base and target. Below: the response's code before and after, a row
    per layer and a column per head.
    """
    shown = {"before": outcome.before[None], outcome.ask.named: outcome.after[None],
             **{name: outcome.control(name) for name in IN_SHORT}}
    with style():
        figure = Figure(figsize=(10.0, 4.6), layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=(2.2, 1.0))
        axes = halves[0].subplots()
        (_draw_symbols if outcome.symbolic else _draw_numbers)(axes, outcome, shown)
        halves[0].suptitle(outcome.sentence(), fontsize=9.5, x=0.01, ha="left")
        key = "itself" if outcome.ask.key is None else f"token {outcome.ask.key}"
        norm = signed_norm(outcome.codes[["before", "after"]].to_numpy())
        maps = halves[1].subplots(1, 2, sharey=True)
        for ax, name in zip(maps, ("before", "after"), strict=True):
            heat_map(ax, outcome.codes.pivot(index="layer", columns="head", values=name), norm)
            ax.set(xlabel="head", title=f"code of the response to {key}, {name}")
        maps[0].set_ylabel("layer")
    return figure


def _draw_symbols(axes: Axes, outcome: BenchOutcome, shown: Mapping[str, np.ndarray]) -> None:
    symbols, width = np.arange(len(outcome.before)), 0.8 / len(shown)
    for number, (name, outputs) in enumerate(shown.items()):
        axes.bar(symbols + (number - 2.0) * width, outputs.mean(0), width,
                 color=BEFORE if name == "before" else AFTER, alpha=1.0 if number < 2 else 0.2
                 + 0.1 * number, label=CONTROLS.get(name, name))
    names = ["\n".join([str(s), *outcome.owners(float(s))]) for s in symbols]
    axes.set_xticks(symbols, names, fontsize=7.5)
    for label, symbol in zip(axes.get_xticklabels(), symbols, strict=True):
        if symbol == outcome.target_answer:
            label.set_color(TARGET)
        if symbol == outcome.truth:
            label.set_fontweight("bold")
    axes.set(ylabel="probability", ylim=(0.0, 1.0), title="the answer, and who would give it")
    axes.legend()


def _draw_numbers(axes: Axes, outcome: BenchOutcome, shown: Mapping[str, np.ndarray]) -> None:
    for row, (name, outputs) in enumerate(shown.items()):
        axes.plot(outputs[:, 0], [row] * len(outputs), "o", markersize=7,
                  color=BEFORE if name == "before" else AFTER,
                  alpha=1.0 if len(outputs) == 1 else 0.45)
    axes.set_yticks(range(len(shown)), [textwrap.fill(CONTROLS.get(name, name), 24)
                                        for name in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    for value, color, label in ((outcome.truth, BEFORE, f"right: {outcome.base_label}"),
                                (outcome.target_answer, TARGET, f"with {outcome.ask.target}")):
        if np.isfinite(value):
            axes.axvline(value, color=color, linestyle="--", label=label)
    answers = outcome.answers["answer"].dropna()
    axes.plot(answers, np.zeros(len(answers)), "|", color=GREY, markersize=6, clip_on=False,
              transform=axes.get_xaxis_transform())
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    axes.set_xlabel("prediction at the query; ticks: the answer with each term in its place")
