"""`metrics.jsonl`: one line per step, split and metric, appended as they come.

A line that a killed process left half-written, always the last, is not an error; a damaged
line anywhere else is.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latentcode.errors import ArtifactError, check
from latentcode.files.storage import parse_json, write_text
from latentcode.metrics import Metric

if TYPE_CHECKING:
    import pandas as pd

METRICS = "metrics.jsonl"
COLUMNS = ("step", "split", "metric", "mean", "se", "n")
TAIL = 1_000
"""Bytes at the end of the file that hold its last whole line."""


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines, all or none; they are on disk when this returns."""
    size = path.stat().st_size if path.exists() else None
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # Half a line would spoil what is appended after this error.
        if size is not None:
            with suppress(OSError):
                os.truncate(path, size)
        raise ArtifactError(f"cannot write {path}: {error}") from error


def append_metrics(path: Path, step: int, split: str, metrics: Mapping[str, Metric]) -> None:
    """Append the metrics of one split at one step; a number that is not finite becomes null."""
    append_lines(path, [
        json.dumps({"step": step, "split": split, "metric": name, "mean": _finite(metric.mean),
                    "se": _finite(metric.se), "n": metric.n})
        for name, metric in metrics.items()])


def read_metrics(path: Path) -> pd.DataFrame:
    """Return the columns step, split, metric, mean, se, n; null becomes NaN.

    `ArtifactError` names the file and the line that is damaged.
    """
    import pandas as pd  # not before: who opens a run need not wait for it

    table = pd.DataFrame([record for record, _ in _records(path)], columns=list(COLUMNS))
    return table.astype({"step": "int64", "mean": "float64", "se": "float64", "n": "int64"})


def recorded_step(folder: Path) -> int:
    """Return the step of the newest metrics of a run folder, 0 before there are some.

    It reads a few bytes, for those who look often.
    """
    try:
        with (folder / METRICS).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")
        return int(parse_json(lines[-2].decode())["step"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


def cut_metrics(path: Path, step: int) -> None:
    """Keep the lines up to and including `step`, all or nothing."""
    kept = "".join(f"{line}\n" for record, line in _records(path) if record["step"] <= step)
    if kept != _text(path):
        write_text(path, kept)


def cut_torn_line(path: Path) -> None:
    """Remove what follows the last newline of a file, if there is a file."""
    if path.exists():
        text = _text(path)
        whole = text[:text.rfind("\n") + 1]
        if whole != text:
            write_text(path, whole)


def _records(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    *lines, _ = _text(path).split("\n")  # what follows the last newline is empty or torn
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_json(line)
        except ValueError:
            record = None
        check(_is_record(record), f"{path}, line {number}, is damaged: {line[:80]!r}; expected "
              f"an object with {', '.join(COLUMNS)}", ArtifactError)
        yield record, line


def _is_record(record: object) -> bool:
    return (isinstance(record, dict) and tuple(record) == COLUMNS
            and all(_is_integer(record[key]) for key in ("step", "n"))
            and all(isinstance(record[key], str) for key in ("split", "metric"))
            and all(record[key] is None or isinstance(record[key], float)
                    or _is_integer(record[key]) for key in ("mean", "se")))


def _is_integer(value: object) -> bool:
    return type(value) is int and abs(value) < 2**63  # what a column of the table holds


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
