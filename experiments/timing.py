"""How long did a training take? What `timing.jsonl` of a run tells."""

from __future__ import annotations

from pathlib import Path

from latentcode.files.storage import parse_json
from latentcode.runs.run import TIMING


def minutes(path: Path) -> float | None:
    """Return how long training took, all attempts together; None where no clock was kept.

    Every attempt begins with an event `start`; a last line that was torn does not count.
    """
    try:
        lines = (path / TIMING).read_text(encoding="utf-8").split("\n")[:-1]
    except OSError:
        return None
    seconds: list[float] = []  # of each attempt
    for record in map(parse_json, lines):
        if record["event"] == "start" or not seconds:
            seconds.append(0.0)
        seconds[-1] = max(seconds[-1], record["seconds"])
    return round(sum(seconds) / 60, 1) if seconds else None
