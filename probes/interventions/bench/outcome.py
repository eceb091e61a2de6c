"""What one instance answers after something was written into its codes, and beside it controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from itertools import pairwise

import numpy as np
import pandas as pd

from latentcode.answers import CLASSES
from latentcode.arguments import as_tuple
from latentcode.figures.style import Figure
from latentcode.tasks.counterfactuals import OTHERS, MinimalPairs

WHAT: dict[str, str] = {
    "interchange": "the codes of its minimal pair, which has the target in place of the base's",
    "instance": "the codes of another instance",
    "mean": "the mean codes of training instances that have the target",
    "hand": "numbers set by hand, one per head",
    # Any other problem can be written as `instance`.
    **{name: f"the codes of a source with {what}" for name, what in OTHERS.items()
       if name != "unrelated"},
}
"""What can be written, for people."""
ANSWERS: dict[str, str] = {"base": "A(x)", "operation": "B(x)", "operands": "A(x')",
                           "answer": "B(x')"}
"""The answer of each class, of operations A and B (the source's) and operands x and x' (its)."""
HOW: dict[str, str] = {"set": "a_h becomes v_h", "add": "a_h becomes a_h + v_h",
                       "scale": "a_h becomes a_h v_h"}
"""What the numbers v_h set by hand do to every code of the scope."""
CONTROLS: dict[str, str] = {
    "control": "same constituents, fresh values",
    "unrelated": "unrelated instances",
    "random": "random codes of equal norm",
    "identity": "its own codes",
}
"""What is written beside it, from which nothing should come, for people."""


@dataclass(frozen=True)
class Patch:
    """What is written into which codes of which instance.

    instance   its number, the row of its codes in `LatentCodes`
    target     the constituent that its source has in place of one of its own
    which      which of its own that is: a response token of SRAVEN, a term of a function (from 0)
    what       a key of `WHAT`
    scope      at which queries and keys, one of `SCOPES` that the task offers
    layers     in which layers, all in one pass
    heads      of which heads alone; None: all
    other      for `instance`: the number of the one whose codes are written
    numbers    for `hand`: one number per head
    how        for `hand`: a key of `HOW`
    renormalize  bring what was written back to the constraint of the model's codes
    keys       of which keys alone, by the numbers of their tokens; None: all of the scope
    """

    instance: int
    target: str
    which: int = 0
    what: str = "interchange"
    scope: str = "row"
    layers: tuple[int, ...] = (0,)
    heads: tuple[int, ...] | None = None
    other: int | None = None
    numbers: tuple[float, ...] | None = None
    how: str = "set"
    renormalize: bool = False
    keys: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", as_tuple(self.layers))
        for name in ("heads", "keys"):
            some = getattr(self, name)
            object.__setattr__(self, name, None if some is None else as_tuple(some))

    @property
    def of_source(self) -> bool:
        """Whether the codes of a source are written that is made for the base."""
        return self.what == "interchange" or self.what in OTHERS

    @property
    def key(self) -> int | None:
        """The key whose code is shown; None: the response itself."""
        return self.keys[0] if self.keys else None

    @property
    def source(self) -> str:
        """The batch of `MinimalPairs` that is written; that of the minimal pair where it is none.
        """
        return self.what if self.what in OTHERS else "sources"


@dataclass(frozen=True, repr=False)
class BenchOutcome:
    """What became of one answer.

    patch     what was written where
    base_label  the constituent that the target takes the place of
    symbolic  whether an answer is one of n symbols (SRAVEN), or a number (fuzzy logic)
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
              are controls), `draw`, `answer`, `kept` and `flipped` (1 or 0; NaN where `counts` is
              False). Symbols are kept where they are those before, flipped where they are the
              target's; numbers are flipped where they lie nearer to the target's answer than to
              the right one, and kept otherwise
    codes     `layer`, `head`, `before`, `after`, `written`: the code a[:, q, k] of the response q
              and itself as the key k, or the first of the keys that alone are written
    exact     whether its own codes, written back, leave all logits as they are, bit for bit
    """

    patch: Patch
    base_label: str
    symbolic: bool
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
        return f"{answer:.0f}" if self.symbolic else f"{answer:.3f}"

    def sentence(self) -> str:
        """What became of the answer? One sentence."""
        before, after = self.answer_before, self.answer_after
        if self.symbolic:
            if before == after:
                return f"The answer stays {self._named(after)}."
            if self.counts and after == self.target_answer:
                outcome = f"what {self.patch.target} answers"
            else:
                outcome = f"not what {self.patch.target} answers"
                if self.counts:
                    outcome += f", which is {self.written(self.target_answer)}"
            return (f"The answer changes from {self._named(before)} to {self._named(after)}: "
                    f"{outcome}.")
        moved = f"The prediction goes from {before:.3f} to {after:.3f}"
        right = f"{self.truth:.3f} is right"
        if np.isnan(self.target_answer):
            return f"{moved}; {right}."
        return (f"{moved}; {right}, and {self.target_answer:.3f} with {self.patch.target} in "
                f"place of {self.base_label}.")

    @property
    def classes(self) -> list[str]:
        """The classes that the answer is of: several where candidates are not told apart."""
        near = {name: abs(self.answer_after - answer) for name, answer in self.candidates.items()}
        return [name for name, distance in near.items() if distance <= self.least / 2] or (
            ["else"] if near else [])

    def whose(self) -> str:
        """Whose answer is it? One sentence, or nothing where what is written is no source's."""
        if not self.candidates:
            return ""
        found = " or ".join(f"{name} ({CLASSES[name]})" for name in self.classes)
        known = ", ".join(f"{ANSWERS[name]} = {self.written(answer)}"
                          for name, answer in self.candidates.items())
        same = ("" if "answer" in self.candidates or "operation" not in self.candidates else
                " The source has the base's operands: operation and answer are the same.")
        return f"Whose answer it is: {found}; {known}.{same}"

    def caveats(self) -> list[str]:
        """Return what a reader must know of this instance, one sentence each."""
        notes = []
        if self.symbolic and self.answer_before != self.truth:
            notes.append(f"The model is wrong on this instance: {self.written(self.truth)} is "
                         "right.")
        if not self.counts:
            reason = ("is not defined" if np.isnan(self.target_answer) else
                      "is also the right one" if self.symbolic else "hardly differs")
            notes.append(f"The answer of {self.patch.target} {reason} on this instance: it "
                         "cannot show a flip.")
        elif not self.source_right:
            notes.append(f"The model answers {self.written(self.source_answer)} to the source "
                         "itself, which is wrong: its codes need not flip the answer.")
        answers = sorted(self.candidates.values())
        if any(b - a <= self.least for a, b in pairwise(answers)):
            notes.append("Some of these answers are the same, or hardly differ: they do not tell "
                         "whose the model's is.")
        if self.patch.what in OTHERS and not self.candidates:
            notes.append(f"An answer of {self.base_label} or {self.patch.target} to other operands "
                         "is not defined here: whose answer it is cannot be told.")
        if not self.natural:
            notes.append(f"The task draws no problem with these operands under {self.base_label} "
                         f"and under {self.patch.target}: a source that is not natural may be "
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
        from latentcode.probes.interventions.bench.figure import bench_figure

        return bench_figure(self)

    def _named(self, answer: float) -> str:
        owners = self.owners(answer)
        return f"{self.written(answer)} ({', '.join(owners[:3]) or 'no answer of any'})"

    def _said(self) -> list[str]:
        return [text for text in (self.sentence(), self.whose(), *self.caveats()) if text]

    def __repr__(self) -> str:
        asked = ", ".join(f"{k}={v!r}" for k, v in asdict(self.patch).items() if v is not None)
        return "\n".join([f"BenchOutcome({asked})", *self._said(), "",
                          self.summary().to_string(index=False)])

    def _repr_html_(self) -> str:
        first, *rest = self._said()
        notes = "".join(f"<p>{escape(note)}</p>" for note in rest)
        return (f"<b>{escape(first)}</b>{notes}{self.summary().to_html(index=False)}"
                f"{self.figure().to_html('the answer before and after')}")


def candidates(patch: Patch, one: MinimalPairs) -> dict[str, float]:
    """Return the answers that what is written can bring, by class; see `BenchOutcome`.

    Those that need other operands, or another operation, only where the source has them.
    """
    if one.candidates is None or not patch.of_source:
        return {}
    answers = dict(zip(ANSWERS, one.candidates[0].tolist(), strict=True))
    found = {name: answers[name] for name in possible(patch)}
    return {} if np.isnan(list(found.values())).any() else found


def possible(patch: Patch) -> tuple[str, ...]:
    """Return the classes of answers that what is written can bring, of `ANSWERS`.

    What comes from no source is taken for the target's, on the operands of the base.
    """
    differs = patch.what if patch.what in OTHERS else "operation"
    return tuple(name for name, needs in (
        ("base", ()), ("operation", ("operation",)), ("operands", ("operands",)),
        ("answer", ("operation", "operands"))) if all(need in differs for need in needs))


def answer_of(output: np.ndarray) -> float:
    """Return the answer of an output [n]: the most probable symbol, or the number itself."""
    return float(output.argmax()) if len(output) > 1 else float(output[0])
