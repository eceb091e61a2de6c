"""What one instance answers after something was written into its codes, beside controls."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from latentcode.answers import IN_WORDS
from latentcode.figures.heat_maps import heat_map, signed_norm
from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.probes.interventions.bench.ask import ANSWERS, CONTROLS, Ask, answer_of, answer_text
from latentcode.tasks.counterfactuals import OTHERS, MinimalPairs

BEFORE, AFTER, TARGET = GREY, PALETTE[0], PALETTE[3]
_CONTROLS = ("control", "unrelated", "random")


class Told(Protocol):
    """What a sentence needs of a `BenchOutcome`, whose properties these are."""

    @property
    def ask(self) -> Ask: ...
    @property
    def base_label(self) -> str: ...
    @property
    def symbolic(self) -> bool: ...
    @property
    def whole(self) -> bool: ...
    @property
    def answer_before(self) -> float: ...
    @property
    def answer_after(self) -> float: ...
    @property
    def known(self) -> Mapping[str, float]: ...
    @property
    def classes(self) -> list[str]: ...
    @property
    def stays(self) -> bool: ...
    @property
    def of_another(self) -> bool: ...
    def written(self, answer: float) -> str: ...


CONTRAST = {"operation": "answer", "answer": "operation", "operands": "answer"}
"""Of which other class an answer of one might have been, had something else arrived."""
NUMBERS = {3: "three", 4: "four"}


def called(outcome: Told) -> dict[str, str]:
    """Return what a sentence calls the answer of each class."""
    first, second = _possessive(outcome, "the answer of ", "'s answer")
    return {"base": IN_WORDS["base"], "operation": f"{second} on this problem's operands",
            "operands": f"{first} on the source's operands", "answer": IN_WORDS["answer"],
            "else": IN_WORDS["else"]}


def _in_contrast(outcome: Told) -> dict[str, str]:
    """Return the same after `not`, where the sentence has named an answer before."""
    first, second = _possessive(outcome, "that of ", "'s")
    return {"base": "the problem's own", "operation": f"{second} on this problem's operands",
            "operands": f"{first} on the source's operands", "answer": "the source's own"}


def _possessive(outcome: Told, of: str, ending: str) -> tuple[str, str]:
    """Return whose answers are those of the two operations."""
    if outcome.whole:
        return f"{outcome.base_label}{ending}", f"{outcome.ask.target}{ending}"
    return f"{of}this problem's operation", f"{of}the source's operation"


def short(outcome: Told) -> dict[str, str]:
    """Return the same for a chart: here are this problem's operands, there the source's."""
    ours, theirs = ((outcome.base_label, outcome.ask.target) if outcome.whole
                    else ("own operation", "source's operation"))
    return {"base": "problem's own", "operation": f"{theirs} here", "operands": f"{ours} there",
            "answer": "source's own", "else": "none of these"}


def sentence(outcome: Told) -> str:
    """What became of the answer? One sentence, which says whose it is."""
    written, names, known = outcome.written, called(outcome), outcome.known
    found = outcome.classes
    value = written(outcome.answer_after)
    if outcome.stays:
        before = "" if outcome.symbolic else f" ({written(outcome.answer_before)} before)"
        return f"The answer stays {value}{before}: {_stays(found, names)}."
    if outcome.of_another:
        return f"It gives {value}, what the model answers to the other problem."
    if len(found) > 1:
        return (f"It gives {value}: {' and '.join(names[name] for name in found)} are not told "
                "apart here.")
    (name,) = found
    if name == "else":
        every = [f"{names[one]}, {written(answer)}" for one, answer in known.items()]
        if len(every) < 3:
            return f"It gives {value}, which is not {', nor '.join(every)}."
        return f"It gives {value}, none of the {NUMBERS[len(every)]} answers that could come."
    said = f"It gives {names[name]}, {value}"
    if not outcome.symbolic:
        said += f" (exactly {written(known[name])})"
    if name == "base":
        return f"{said}, the right one."
    if name == "operation" and outcome.ask.of_source and "operands" not in outcome.ask.source:
        return f"{said}. The source has the same operands: it is the source's own answer, too."
    other = CONTRAST[name] if CONTRAST[name] in known else "base"
    return f"{said}, not {_in_contrast(outcome)[other]}, {written(known[other])}."


def _stays(found: list[str], names: Mapping[str, str]) -> str:
    if found == ["else"]:
        return "wrong, as it was"
    return " and ".join(names[name] for name in found) + ("" if len(found) == 1 else
                                                        " are the same here")


def class_of(answer: float, known: Mapping[str, float], least: float) -> list[str]:
    """Return the classes that an answer is of: several where they are not told apart."""
    near = [name for name, value in known.items() if abs(answer - value) <= least / 2]
    return near or ["else"]


def known_words(outcome: Told) -> str:
    """Return all answers that can come, in words: for those who want to know what they mean."""
    names = called(outcome)
    return "; ".join(f"{names[name]}: {outcome.written(answer)}"
                     for name, answer in outcome.known.items() if not np.isnan(answer))


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

    def sentence(self) -> str:
        """What became of the answer? One sentence, which says whose it is."""
        return sentence(self)

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
        answers = sorted(self.candidates.values())
        if any(b - a <= self.least for a, b in pairwise(answers)):
            notes.append("Some of the answers that could come are the same, or hardly differ "
                         f"({known_words(self)}): they do not tell whose the model's is.")
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

    def _said(self) -> list[str]:
        return [self.sentence(), *self.caveats()]

    def __repr__(self) -> str:
        ask = self.ask
        source = f"instance {ask.other}" if ask.other is not None else f"{ask.target} in its place"
        return "\n".join([f"BenchOutcome: instance {ask.instance}, {self.base_label} "
                          f"({ask.which}), source {source}", str(ask.patch), *self._said(), "",
                          self.summary().to_string(index=False)])

    def _repr_html_(self) -> str:
        first, *rest = self._said()
        notes = "".join(f"<p>{escape(note)}</p>" for note in rest)
        return (f"<b>{escape(first)}</b>{notes}{self.summary().to_html(index=False)}"
                f"{self.figure().to_html('the answer before and after')}")


def is_target(answer: float, target: float, own: float, *, symbolic: bool) -> bool:
    """Whether an answer is the target's: the same symbol or, of numbers, nearer to it."""
    return answer == target if symbolic else abs(answer - target) < abs(answer - own)


def candidates(ask: Ask, one: MinimalPairs) -> dict[str, float]:
    """Return the answers that what is written can bring, by class; see `BenchOutcome`.

    Those that need other operands, or another operation, only where the source has them.
    """
    if one.candidates is None or not ask.of_source:
        return {}
    answers = dict(zip(ANSWERS, one.candidates[0].tolist(), strict=True))
    found = {name: answers[name] for name in ask.classes}
    return {} if np.isnan(list(found.values())).any() else found


def bench_figure(outcome: BenchOutcome) -> Figure:
    """Return the picture of an outcome.

    Above, for symbols: the probability of each before and after, under it the constituents that
    would answer it, and the means of three controls on the same axis. For numbers: one line per
    patch, a mark per draw, beside the answers of base and target. Below: the response's code
    before and after, a row per layer and a column per head.
    """
    with style():
        figure = Figure(figsize=(10.0, 4.6), layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=(2.2, 1.0))
        above, below = halves
        if outcome.symbolic:
            axes = above.subplots(1, 4, sharey=True, width_ratios=(2.6, 1, 1, 1))
            _draw_symbols(axes[0], outcome)
            for ax, name in zip(axes[1:], _CONTROLS, strict=True):
                _draw_control(ax, outcome, name)
        else:
            _draw_numbers(above.subplots(), outcome)
        above.suptitle(outcome.sentence(), fontsize=9.5, x=0.01, ha="left")
        _draw_codes(below.subplots(1, 2, sharey=True), outcome)
    return figure


def _draw_symbols(axes: Axes, outcome: BenchOutcome) -> None:
    symbols = np.arange(len(outcome.before))
    axes.bar(symbols - 0.2, outcome.before, 0.4, color=BEFORE, label="before")
    axes.bar(symbols + 0.2, outcome.after, 0.4, color=AFTER, label="after")
    names = ["\n".join([str(s), *outcome.owners(float(s))]) for s in symbols]
    axes.set_xticks(symbols, names, fontsize=7.5)
    for label, symbol in zip(axes.get_xticklabels(), symbols, strict=True):
        if symbol == outcome.target_answer:
            label.set_color(TARGET)
        if symbol == outcome.truth:
            label.set_fontweight("bold")
    axes.set(ylabel="probability", ylim=(0.0, 1.0), title="the answer, and who would give it")
    axes.legend()


def _draw_control(axes: Axes, outcome: BenchOutcome, name: str) -> None:
    outputs = outcome.control(name)
    symbols = np.arange(outputs.shape[1])
    axes.bar(symbols, outputs.mean(0), 0.8, color=AFTER, alpha=0.6)
    axes.set_xticks(symbols)
    kept = outcome.table.loc[outcome.table["patch"] == name, "kept"]
    axes.set(title=f"{_wrapped(CONTROLS[name])}\n{int(kept.sum())} of {len(kept)} keep it")


def _draw_numbers(axes: Axes, outcome: BenchOutcome) -> None:
    lines = {"before": outcome.before[None], outcome.ask.named: outcome.after[None],
             **{name: outcome.control(name) for name in _CONTROLS}}
    for row, (name, outputs) in enumerate(lines.items()):
        color = BEFORE if name == "before" else AFTER
        axes.plot(outputs[:, 0], [row] * len(outputs), "o", color=color, markersize=7,
                  alpha=1.0 if len(outputs) == 1 else 0.45)
    axes.set_yticks(range(len(lines)), [_wrapped(CONTROLS.get(name, name)) for name in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    marks = [(outcome.truth, BEFORE, f"right: {outcome.base_label}")]
    if np.isfinite(outcome.target_answer):
        marks.append((outcome.target_answer, TARGET, f"with {outcome.ask.target}"))
    for value, color, _ in marks:
        axes.axvline(value, color=color, linestyle="--")
    for value in outcome.answers["answer"].dropna():
        axes.plot([value], [0.0], "|", color=GREY, markersize=6, clip_on=False,
                  transform=axes.get_xaxis_transform())
    axes.legend(handles=[Line2D([], [], color=color, linestyle="--", label=label)
                         for _, color, label in marks],
                loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    axes.set_xlabel("prediction at the query; ticks: the answer with each term in its place")


def _draw_codes(axes: np.ndarray, outcome: BenchOutcome) -> None:
    key = "itself" if outcome.ask.key is None else f"token {outcome.ask.key}"
    norm = signed_norm(outcome.codes[["before", "after"]].to_numpy())
    for ax, name in zip(axes, ("before", "after"), strict=True):
        heat_map(ax, outcome.codes.pivot(index="layer", columns="head", values=name), norm)
        ax.set(xlabel="head", title=f"code of the response to {key}, {name}")
    axes[0].set_ylabel("layer")


def _wrapped(text: str, width: int = 24) -> str:
    return textwrap.fill(text, width)
