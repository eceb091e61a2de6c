"""What is to be reached on an H100 or H200."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latentcode.errors import ArtifactError

ONE_MODEL = 3.0
"""Times the speed of the official code on the same GPU, one small model."""
AGGREGATE = 30.0
"""Model-steps per second of the best ensemble, against the official code's one at a time."""
MILLISECONDS = {("sraven", "hyla"): 0.25, ("logic", "hyla"): 0.06}
"""(task, kind) -> milliseconds per model and step in the best ensemble."""


def said(what: str, reached: float, target: float, unit: str, *, at_least: bool) -> str:
    """Return the line of a report that says whether a target is reached."""
    good = reached >= target if at_least else reached <= target
    return (f"{what}: {reached:.3g} {unit}, target {'at least' if at_least else 'at most'} "
            f"{target:g}: **{'reached' if good else 'MISSED'}**.")


def official_milliseconds(result: Path, task: str, kind: str) -> float:
    """Return the official code's milliseconds per step from a result of `training_step`.

    `ArtifactError` where the file is none, or does not have the case.
    """
    try:
        cases: list[Mapping[str, Any]] = json.loads(result.read_text(encoding="utf-8"))["cases"]
        case = next(each for each in cases if each["name"] == f"{task}, {kind}")
        median: float = case["step"]["milliseconds"]["official"]["median"]
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise ArtifactError(f"{result} has no time of the official code for {task}, {kind}; "
                            "expected a JSON of training_step --official") from error
    return median
