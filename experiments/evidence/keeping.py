"""What was computed for a run is kept, so that long work can be interrupted and goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from latentcode.probes.common.results import TableResult
from latentcode.runs import Run

R = TypeVar("R", bound=TableResult)


def key_of(runs: Sequence[Run], settings: Mapping[str, object]) -> str:
    """Return a few letters that another run, checkpoint or setting would change."""
    text = json.dumps([[(run.id, run.checkpoints()[-1]) for run in runs], dict(settings)])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def kept(folder: Path, kind: type[R], compute: Callable[[], R]) -> R:
    """Return the result that a folder holds, or compute it and put it there."""
    if not any((folder / name).exists() for name in kind.markers()):
        folder.parent.mkdir(parents=True, exist_ok=True)
        compute().save(folder, figures=False)
    return kind.load(folder)
