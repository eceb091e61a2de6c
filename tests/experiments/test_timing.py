"""What is read of the clock of a training, stopped and resumed."""

from __future__ import annotations

import json
from pathlib import Path

from latentcode.experiments.timing import attempts, minutes, seconds_per_step
from latentcode.runs.folder import TIMING


def clock(folder: Path, *records: tuple[str, int, float]) -> Path:
    """Write a `timing.jsonl` whose last line is torn."""
    lines = [json.dumps({"event": event, "step": step, "seconds": seconds})
             for event, step, seconds in records]
    (folder / TIMING).write_text("\n".join([*lines, '{"event": "ev']), encoding="utf-8")
    return folder


def test_a_run_that_was_never_trained_has_no_clock(tmp_path: Path) -> None:
    assert attempts(tmp_path) == []
    assert minutes(tmp_path) is None
    assert seconds_per_step(tmp_path) is None


def test_attempts_are_added_up_and_the_newest_with_a_step_sets_the_pace(tmp_path: Path) -> None:
    folder = clock(tmp_path, ("start", 0, 30.0), ("evaluation", 100, 330.0),
                   ("start", 100, 10.0), ("evaluation", 150, 60.0), ("end", 200, 210.0),
                   ("start", 200, 60.0))
    assert [len(attempt) for attempt in attempts(folder)] == [2, 3, 1]
    assert minutes(folder) == 10.0
    assert seconds_per_step(folder) == 2.0
