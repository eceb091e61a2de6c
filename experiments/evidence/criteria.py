"""The criteria by which a study's statements are judged, as they were committed before it.

A *statement* is what may be said of a place, such as "carries the operation". The files keep the
words that they were written in before the measurements: they call a statement a *word*, say that it
is *earned* where its criterion is met, and have the former names of the classes of answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from latentcode.errors import check_choice
from latentcode.experiments.evidence.rules import Verdict
from latentcode.files.migrations import FORMER_CLASSES

FOLDER = Path(__file__).parent / "claims"
SAID: Mapping[Verdict, str] = {"agrees": "met", "differs": "refuted", "undecided": "undecided",
                               "not run": "undecided"}
"""Verdicts of statements, as tables have them."""


@cache
def criteria(study: str) -> Mapping[str, Any]:
    """Return the criteria of a study, in the words of today.

    `statements`, of all runs and under `published` of those of the published size alone, are the
    file's `words`; their `class` is one of `latentcode.answers.CLASSES`.
    `UnknownNameError` for a study that has none.
    """
    check_choice("criteria of study", study, sorted(path.stem for path in FOLDER.glob("*.yaml")))
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{study}.yaml").read_text(encoding="utf-8"))
    for part in (found, found.get("published", {})):
        if "words" in part:
            part["statements"] = {
                name: {**rule, "class": FORMER_CLASSES.get(rule["class"], rule["class"])}
                for name, rule in part.pop("words").items()}
    return found
