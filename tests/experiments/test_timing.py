"""What is read of the clock of a training, stopped and resumed."""

from __future__ import annotations

import json
from pathlib import Path

from latentcode.experiments.timing import minutes
from latentcode.runs.run import TIMING


def test_attempts_are_added_up(tmp_path: Path) -> None:
    assert minutes(tmp_path) is None
    records = (("start", 30.0), ("evaluation", 330.0), ("start", 10.0), ("evaluation", 60.0),
               ("end", 210.0), ("start", 60.0))
    lines = [json.dumps({"event": event, "seconds": seconds}) for event, seconds in records]
    (tmp_path / TIMING).write_text("\n".join([*lines, '{"event": "ev']), encoding="utf-8")
    assert minutes(tmp_path) == 10.0
