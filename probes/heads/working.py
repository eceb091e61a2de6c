"""What of a long question is done: sums on the disk, from which the same call goes on.

A question whose result goes to the folder `out` works in `out.partial`:

    work.json               the settings, and of each stage how far it is, with a checksum
    {stage}.safetensors     its arrays so far
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentcode.errors import ArtifactError, RunError, check
from latentcode.files.locks import exclusive
from latentcode.files.storage import (
    check_checksum,
    check_free,
    checksum,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)

STATE, LOCK = "work.json", ".lock"
KEPT_EVERY = 10.0
"""Seconds of work that an interruption may lose."""


@dataclass(frozen=True)
class Done:
    """How far a stage is.

    after, n  where the next text begins, and how many come before it (`Texts.blocks`)
    """

    arrays: Mapping[str, np.ndarray]
    after: int
    n: int
    finished: bool


@dataclass(frozen=True)
class _Entry:
    file: str
    sha256: str
    after: int
    n: int
    finished: bool


class Work:
    """Stages of a question, kept while they are computed; without a folder nothing is kept."""

    def __init__(self, folder: Path | None = None, settings: Mapping[str, Any] | None = None
                 ) -> None:
        self.folder, self.settings = folder, json.loads(json.dumps(dict(settings or {})))
        self.stages: dict[str, _Entry] = {}
        self._last = time.monotonic()

    def open(self, *, discard: bool) -> None:
        """Look up what is done; `discard` passes over the work of other settings."""
        assert self.folder is not None
        file = self.folder / STATE
        if not file.is_file():
            strange = [entry.name for entry in self.folder.iterdir() if entry.name != LOCK]
            check(not strange, f"{self.folder} exists and is no unfinished work (no {STATE}); "
                  "expected that name to be free", RunError)
            self._record()
            return
        state = read_json(file)
        try:
            theirs = dict(state["settings"])
            stages = {name: _Entry(**entry) for name, entry in state["stages"].items()}
        except (TypeError, KeyError, AttributeError, ValueError):
            raise ArtifactError(f"{file} does not describe unfinished work; delete {self.folder} "
                                "to start again") from None
        different = [f"{key}: {theirs.get(key)!r} there, {self.settings.get(key)!r} asked for"
                     for key in {**theirs, **self.settings}
                     if theirs.get(key) != self.settings.get(key)]
        check(discard or not different, f"{self.folder} holds unfinished work with other settings "
              f"({'; '.join(different)}); finish it with its own, delete it, or overwrite it "
              "(--overwrite, overwrite=True)", RunError)
        self.stages = {} if different else stages

    def found(self, stage: str) -> Done | None:
        """Return what is done of a stage; `ArtifactError` where it was damaged."""
        entry = self.stages.get(stage)
        if self.folder is None or entry is None:
            return None
        path = self.folder / entry.file
        check_checksum(path, entry.sha256)
        return Done(read_tensors(path), entry.after, entry.n, entry.finished)

    def keep(
        self, stage: str, arrays: Mapping[str, np.ndarray], after: int, n: int, *,
        finished: bool = False,
    ) -> None:
        """Keep how far a stage is, now and then, and when it is finished."""
        now = time.monotonic()
        if self.folder is None or not (finished or now - self._last >= KEPT_EVERY):
            return
        self._last = now
        former = self.stages.get(stage)
        file = f"{stage}-{n}{'-finished' if finished else ''}.safetensors"
        write_tensors(self.folder / file, arrays)
        self.stages[stage] = _Entry(file, checksum(self.folder / file), after, n, finished)
        self._record()
        if former is not None and former.file != file:
            (self.folder / former.file).unlink(missing_ok=True)

    def _record(self) -> None:
        assert self.folder is not None
        write_json(self.folder / STATE, {
            "settings": self.settings,
            "stages": {name: asdict(entry) for name, entry in self.stages.items()}})


@contextmanager
def working(
    out: str | Path | None, settings: Mapping[str, Any], marker: str, *, overwrite: bool = False
) -> Iterator[Work]:
    """Begin work whose result goes to `out`, or go on where an interruption left off.

    settings  all that the numbers depend on, as JSON; to go on they must be the same
    marker    the file that makes `out` a result of this question

    `RunError` where `out` exists and is not to be overwritten, where another process works, and for
    unfinished work with other settings. The folder of the work goes when its result is there.
    """
    if out is None:
        yield Work()
        return
    out = Path(out)
    check_free(out, overwrite=overwrite, marker=marker)
    folder = out.with_name(f"{out.name}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / LOCK):
        work = Work(folder, settings)
        work.open(discard=overwrite)
        try:
            yield work
        except BaseException as error:
            if work.stages:
                error.add_note(f"what was done is kept in {folder}; the same call goes on from "
                               "there")
            else:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


__all__ = ["Done", "Work", "working"]
