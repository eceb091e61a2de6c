"""What was found? Sentences that are written from the numbers, and change where these do."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from latentcode.experiments.demo.asking import (
    ALL,
    AMONG,
    LEAST_COUNTED,
    PAIR,
    READINGS,
    ROW,
    Asked,
    Reading,
)
from latentcode.experiments.evidence.rules import apart, difference
from latentcode.experiments.evidence.tables import span
from latentcode.probes.common.results import with_interval

CONTROLS: dict[str, str] = {"untrained": "untrained model", "shuffled": "shuffled labels"}
"""Features that a code has to exceed before it is said to tell something."""
HOW: dict[Reading, str] = {
    "fixed_query": "where all problems share one query and their examples differ",
    "fixed_context": "where all problems share one context and their queries differ"}
"""The readings, as a part of a sentence."""


def findings(asked: Sequence[Asked]) -> dict[str, str]:
    """Return what the models' codes tell, what they do not, and what they cause, by heading.

    A code tells the terms of a function where the score's interval lies above that of each
    control and the score's low end above the best constant answer; a place brings something where
    it meets the criterion of the study of operations.
    """
    found = {"A code tells": _told(asked), "A code does not tell": _untold(asked),
             "The residual stream": _residual(asked)}
    found |= {f"What codes cause in {one.name}:": _caused(one)
              for one in asked if one.answers_enough}
    found["Not known:"] = _unknown(asked)
    return {heading: text for heading, text in found.items() if text}


def tells(one: Asked, reading: Reading) -> bool:
    """Return whether the code of the last layer is above its controls by their intervals."""
    code = one.score(reading)
    controls = [_best_control(one, reading)[1], pd.Series(
        dict.fromkeys(("value", "low", "high"), code["chance"]))]
    return all(_above(code, control) for control in controls)


def _told(asked: Sequence[Asked]) -> str:
    parts = [f"{HOW[reading]}: a probe on the last layer's code reaches F1 {_scores(some, reading)}"
             for reading in READINGS if (some := [one for one in asked if tells(one, reading)])]
    return ("the terms of a held-out function clearly better than its controls do "
            f"{'; and '.join(parts)}." if parts else
            "nothing that was looked for here: no probe for the terms of held-out functions is "
            "clearly better than its controls.")


def _untold(asked: Sequence[Asked]) -> str:
    parts = []
    for reading in reversed(READINGS):
        some = [one for one in asked if not tells(one, reading)]
        if some:
            codes, controls = (span(values) for values in (
                [one.score(reading)["value"] for one in some],
                [_best_control(one, reading)[1]["value"] for one in some]))
            parts.append(f"{HOW[reading]}: F1 {codes}, best controls {controls} "
                         f"({_listed([one.name for one in some])})")
    return (f"the terms clearly better than its controls do {'; nor '.join(parts)}."
            if parts else "")


def _residual(asked: Sequence[Asked]) -> str:
    """Compare the code with the stream that the layer starts from, over models and readings."""
    pairs = [(one.score(reading), one.score(reading, "residual"))
             for one in asked for reading in READINGS]
    more = sum(_above(stream, code) for code, stream in pairs)
    less = sum(_above(code, stream) for code, stream in pairs)
    text = (f"that enters the layer tells the terms clearly better than the code in {more} of the "
            f"{len(pairs)} cases above and clearly worse in {less}.")
    return text if less else f"{text} No probe here shows that a code adds anything to it."


def _caused(one: Asked) -> str:
    """Say which places bring what from a problem with another function and another query."""
    def sentence(
        place: str, statement: str, outcome: str, what: str, control: str, has: str
    ) -> str:
        brings = "bring" if one.brings(place, statement) else "do not bring"
        return (f"{place.capitalize()} {brings} the source's {what}: "
                f"{one.rate(place, outcome):.2f} of answers (source with {has} "
                f"{one.rate(place, outcome, control):.2f}, unrelated source "
                f"{one.rate(place, outcome, 'unrelated'):.2f}).")

    return " ".join([
        "its own codes are replaced by those of a source, a problem with another function and "
        "another query.",
        sentence(AMONG, "carries the operation", "operation", "function", "operands",
                 "the same function"),
        sentence(ROW, "carries the operands", "operands", "query", "interchange", "the same query"),
        sentence(ALL, "carries the answer", "answer", "whole answer", "operands",
                 "the same function"),
        f"The {PAIR} alone, which the probes read, leaves {one.rate(PAIR, 'base'):.2f} of "
        "answers as they are."])


def _unknown(asked: Sequence[Asked]) -> str:
    few = [f"{one.name} ({one.n_counted} problems)" for one in asked if not one.answers_enough]
    return (f"what codes cause in {_listed(few)}, because fewer than {LEAST_COUNTED} of the "
            "problems are answered together with their sources." if few else "")


def _scores(some: Sequence[Asked], reading: Reading) -> str:
    parts = []
    for one in some:
        control, score = _best_control(one, reading)
        parts.append(f"{with_interval(one.score(reading))} in {one.name} "
                     f"({CONTROLS[control]} {with_interval(score)})")
    return _listed(parts)


def _best_control(one: Asked, reading: Reading) -> tuple[str, pd.Series]:
    """Return the control whose interval reaches highest."""
    scores = {features: one.score(reading, features) for features in CONTROLS}
    best = max(scores, key=lambda features: float(scores[features]["high"]))
    return best, scores[best]


def _above(one: pd.Series, other: pd.Series) -> bool:
    rows = apart(*(pd.DataFrame([dict(score)]) for score in (one, other)))
    return difference("score", rows, 0.0, fewest=1).verdict == "agrees"


def _listed(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
