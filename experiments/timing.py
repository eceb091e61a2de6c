"""How long did a training take? What `timing.jsonl` of a run tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latentcode.files.storage import parse_json
from latentcode.runs.folder import TIMING
from latentcode.runs.resumption import MOVED


def attempts(path: Path) -> list[list[dict[str, Any]]]:
    """Return the records of each attempt at a run, without a last line that was torn.

    A move to another device stands alone, as an attempt of no time.
    """
    try:
        lines = (path / TIMING).read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return []
    found: list[list[dict[str, Any]]] = []
    for record in map(parse_json, lines):
        if record["event"] in ("start", MOVED) or not found:
            found.append([])
        found[-1].append(record)
    return found


def minutes(path: Path) -> float | None:
    """Return how long training took, all attempts together; None where no clock was kept."""
    clocked = attempts(path)
    return round(sum(attempt[-1]["seconds"] for attempt in clocked) / 60, 1) if clocked else None


def seconds_per_step(path: Path) -> float | None:
    """Return the pace of the newest attempt that made any step on the present device, or None."""
    for attempt in reversed(attempts(path)):
        first, last = attempt[0], attempt[-1]
        if first["event"] == MOVED:
            return None
        steps = last["step"] - first["step"]
        if steps > 0:
            return float(last["seconds"] - first["seconds"]) / steps
    return None
