"""Whose answer came, in words: the sentences of an outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from latentcode.answers import IN_WORDS
from latentcode.probes.interventions.bench.ask import Ask


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


__all__ = ["called", "class_of", "known_words", "sentence", "short"]
