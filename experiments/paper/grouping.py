"""Which claims belong together on the page, and which are counted?

Claims of the paper about trained models, definitions and counts of its tasks, and our own are
counted apart. Those of one observation that have the same verdict are one; a claim that others took
the place of is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from latentcode.experiments.evidence.claim import Claim, load_claims

Judged = Mapping[str, Any]
"""A claim with its verdict, as `result.json` has it."""
GROUPS: Mapping[str, str] = {
    "empirical": "Empirical claims of the paper", "task": "Definitions and counts of the task",
    "ours": "Our own claims"}
DEFINITIONS: tuple[str, ...] = ("tabA2", "figA9", "tabA3", "figA1")
"""Results about the tasks, the settings and the equations, and not about what models learn."""
PRINTED = "as printed"
"""The verdict of a claim that differs by how something is printed, like an erratum."""
VERDICTS: Mapping[str, str] = {
    "agrees": "agrees", "differs": "**differs**", PRINTED: "erratum-like",
    "undecided": "undecided", "not run": "not run at this size"}
"""Verdicts as they are printed, in the order of the counts."""


@cache
def _claims() -> Mapping[str, Claim]:
    return {claim.id: claim for claim in load_claims()}


def known(judged: Judged) -> Claim | None:
    """Return a judged claim as the file has it; None for one that it no longer has."""
    return _claims().get(judged["id"])


def group(judged: Judged, result: str) -> str:
    """Return which of `GROUPS` a claim of a result belongs to."""
    if str(judged["source"]).startswith("ours"):
        return "ours"
    return "task" if result in DEFINITIONS else "empirical"


def verdict(judged: Judged) -> str:
    """Return the verdict of a claim, one of `VERDICTS`."""
    claim = known(judged)
    printing = claim is not None and claim.printing and judged["verdict"] == "differs"
    return PRINTED if printing else str(judged["verdict"])


def said(judged: Judged) -> str:
    """Return the verdict as it stands in a table, with what is to be said of it."""
    claim = known(judged)
    words = VERDICTS[verdict(judged)]
    if claim is not None and claim.superseded_by:
        words += " (superseded)"
    elif claim is not None and claim.questioned:
        words += " (*threshold questioned*)"
    return words


def counted(claims: Iterable[Judged]) -> Counter[str]:
    """Return verdict -> how many claims have it, those of one observation once."""
    units = set()
    for judged in claims:
        claim = known(judged)
        if claim is None or not claim.superseded_by:
            one = claim.observation if claim is not None and claim.observation else judged["id"]
            units.add((one, verdict(judged)))
    return Counter(name for _, name in units)


def observations(claims: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Return observation -> its claims, of those that several claims share."""
    found: dict[str, list[Judged]] = {}
    for judged in claims:
        claim = known(judged)
        if claim is not None and claim.observation:
            found.setdefault(claim.observation, []).append(judged)
    return {name: of_it for name, of_it in found.items() if len(of_it) > 1}


def in_words(counts: Mapping[str, int]) -> str:
    """Say counts of verdicts, as in `9 agree, 1 differs, 2 undecided`."""
    return ", ".join(f"{n} {_verb(name, n)}" for name in VERDICTS if (n := counts.get(name, 0)))


def _verb(name: str, n: int) -> str:
    words = VERDICTS[name].strip("*")
    return words.removesuffix("s") if n > 1 and name in ("agrees", "differs") else words
