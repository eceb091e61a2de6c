"""What one problem answers after something was written into its codes, beside controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.metrics import IN_WORDS
from latentcode.probes.interventions.patch import Added, Patch
from latentcode.probes.interventions.patches import Mean
from latentcode.probes.interventions.result import COLOURS
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
IN_SHORT = {"control": "same constituents", "unrelated": "other problems",
            "random": "random codes"}
"""The controls in a sentence."""
CONTRAST = {"operation": "answer", "answer": "operation", "operands": "answer"}
"""Of which other class an answer of one might have been, had something else arrived."""
BEFORE, AFTER = GREY, PALETTE[0]


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
        return ("base", *(name for name in ("operation", "operands") if name in differs),
                *(["answer"] if "operation+operands" in differs else []))


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
        """Return the answer with codes number `row`; None: as the problem is."""
        return answer_of(self.before if row is None else self.outputs[row])

    def same(self, first: float, second: float) -> bool:
        """Whether two answers are the same, or not told apart."""
        return abs(first - second) <= self.least / 2

    def alike(self, row: int) -> list[int]:
        """Return the other codes that give the answer of codes number `row`."""
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
        return float(self.answers.set_index("role")["answer"]["target"])

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
        both = {"base": self.truth, "operation": self.target_answer}
        return self.candidates or {
            name: answer for name, answer in both.items() if not np.isnan(answer)}

    def classes_of(self, answer: float) -> list[str]:
        """Return the classes that an answer is of: several where they are not told apart."""
        return [name for name, value in self.known.items()
                if abs(answer - value) <= self.least / 2] or ["else"]

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
        """Whether the answer is the one before: the same symbol, or a number of the same class that
        is no farther from it than `least` tells apart."""
        if self.symbolic:
            return self.answer_after == self.answer_before
        return (abs(self.answer_after - self.answer_before) <= self.least / 2
                and self.classes == self.classes_of(self.answer_before))

    def in_words(self) -> dict[str, str]:
        """Return what a sentence calls the answer of each class."""
        first, second = ((f"{self.base_label}'s answer", f"{self.ask.target}'s answer")
                         if self.whole else ("the answer of this problem's operation",
                                             "the answer of the source's operation"))
        return {**IN_WORDS, "operation": f"{second} on this problem's operands",
                "operands": f"{first} on the source's operands"}

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
        every = " and ".join(names[name] for name in classes)
        if self.stays:
            before = "" if self.symbolic else f" ({self.written(self.answer_before)} before)"
            same = " are the same here" if len(classes) > 1 else ""
            whose = "wrong, as it was" if classes == ["else"] else every + same
            return f"The answer stays {value}{before}: {whose}."
        if self.ask.other is not None and abs(
                self.answer_after - self.source_answer) <= self.least / 2:
            return f"It gives {value}, what the model answers to the other problem."
        if len(classes) > 1:
            return f"It gives {value}: {every} are not told apart here."
        (name,) = classes
        if name == "else":
            if len(known) > 2:
                n = {3: "three", 4: "four"}[len(known)]
                return f"It gives {value}, none of the {n} answers that could come."
            others = ", nor ".join(f"{names[name]}, {self.written(answer)}"
                                   for name, answer in known.items())
            return f"It gives {value}, which is not {others}."
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

    def caveats(self) -> list[str]:
        """Return what a reader must know of this instance, one sentence each."""
        notes = []
        target, names = self.ask.target, self.in_words()
        if self.symbolic and self.answer_before != self.truth:
            notes.append(f"The model is wrong on this instance: {self.written(self.truth)} is "
                         "right.")
        if not self.counts:
            reason = ("is not defined" if np.isnan(self.target_answer) else
                      "is also the right one" if self.symbolic else "hardly differs")
            notes.append(f"The answer of {target} {reason} on this instance: it cannot show a "
                         "flip.")
        elif not self.telling:
            notes.append(f"The model already gives {target}'s answer before anything is "
                         "written: this instance cannot show a flip, and its controls are left "
                         "out.")
        elif not self.source_right:
            notes.append(f"The model answers {self.written(self.source_answer)} to the source "
                         "itself, which is wrong: its codes need not flip the answer.")
        answers = sorted(self.candidates.values())
        if any(b - a <= self.least for a, b in pairwise(answers)):
            known = "; ".join(f"{names[name]}: {self.written(answer)}"
                              for name, answer in self.known.items())
            notes.append("Some of the answers that could come are the same, or hardly differ "
                         f"({known}): they do not tell whose the model's is.")
        if self.ask.source in OTHERS and not self.candidates:
            notes.append(f"An answer of {self.base_label} or {target} to other operands "
                         "is not defined here: whose answer it is cannot be told.")
        if not self.natural:
            notes.append(f"The task draws no problem with these operands under {self.base_label} "
                         f"and under {target}: a source that is not natural may be "
                         "answered rightly by luck.")
        return notes

    def summary(self) -> pd.DataFrame:
        """Return one row per patch: how often the answer was kept and flipped over its draws."""
        def written(answers: pd.Series) -> str:
            drawn = sorted(set(answers))
            return (", ".join(map(self.written, drawn)) if self.symbolic else
                    " to ".join(map(self.written, dict.fromkeys((drawn[0], drawn[-1])))))

        return self.table.groupby("patch", sort=False, as_index=False).agg(
            draws=("draw", "size"), answers=("answer", written), kept=("kept", "mean"),
            flipped=("flipped", "mean"))

    def figure(self) -> Figure:
        """Return the answer before and after, the controls beside it, and the response's codes.

        Above: the answer before, after, and with each draw of the controls, beside the answers that
        could come; of symbols the size of a mark is its probability. Below: the response's code
        before and after, a row per layer and a column per head.
        """
        rows = {"before": self.before[None], self.ask.named: self.after[None],
                **{name: self.control(name) for name in IN_SHORT}}
        with style():
            figure = Figure(figsize=(10.0, 4.6), layout="constrained")
            halves: Any = figure.subfigures(2, 1, height_ratios=(2.2, 1.0))
            axes = halves[0].subplots()
            for row, (name, outputs) in enumerate(rows.items()):
                sizes = outputs if self.symbolic else np.full_like(outputs, 0.4)
                answers = np.indices(outputs.shape)[1] if self.symbolic else outputs
                axes.scatter(answers, np.full(outputs.shape, row), 160.0 * sizes,
                             color=BEFORE if name == "before" else AFTER,
                             alpha=1.0 if row < 2 else 0.45)
            axes.set_yticks(range(len(rows)), [CONTROLS.get(name, name) for name in rows])
            axes.set_ylim(len(rows) - 0.4, -0.6)
            for name, answer in self.known.items():
                axes.axvline(answer, color=COLOURS[name], linestyle="--", zorder=0,
                             label=f"{self.in_short()[name]}: {self.written(answer)}")
            axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
            axes.set_xlabel("symbol; size: its probability" if self.symbolic else
                            "prediction at the query")
            if self.symbolic:
                axes.set_xticks(range(len(self.before)), [
                    "\n".join([self.written(s), *self.owners(float(s))])
                    for s in range(len(self.before))], fontsize=7.5)
            halves[0].suptitle(self.sentence(), fontsize=9.5, x=0.01, ha="left")
            key = "itself" if self.ask.key is None else f"token {self.ask.key}"
            norm = signed_norm(self.codes[["before", "after"]].to_numpy())
            maps = halves[1].subplots(1, 2, sharey=True)
            for ax, name in zip(maps, ("before", "after"), strict=True):
                heat_map(ax, self.codes.pivot(index="layer", columns="head", values=name), norm)
                ax.set(xlabel="head", title=f"code of the response to {key}, {name}")
            maps[0].set_ylabel("layer")
        return figure

    def __repr__(self) -> str:
        ask = self.ask
        source = f"instance {ask.other}" if ask.other is not None else f"{ask.target} in its place"
        return "\n".join([f"BenchOutcome: instance {ask.instance}, {self.base_label} "
                          f"({ask.which}), source {source}", str(ask.patch), self.sentence(),
                          *self.caveats(), "", self.summary().to_string(index=False)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.caveats())
        return (f"<b>{escape(self.sentence())}</b>{notes}{self.summary().to_html(index=False)}"
                f"{self.figure().to_html('the answer before and after')}")
