"""What the verbs read out of runs: the codes, and those of the initial weights beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentcode.codes import LatentCodes
from latentcode.codes.of_tasks import extract
from latentcode.errors import ProbeError, check
from latentcode.runs import Run
from latentcode.runs.named import load_run


def extract_with_untrained(
    run: Run, split: str, **reading: Any
) -> tuple[LatentCodes, LatentCodes]:
    """Return a run's codes with residual streams, and those of its initial weights.

    reading  what `extract` takes
    """
    return (extract(run, split, residuals=True, **reading),
            extract(run, split, untrained=True, **reading))


def load_runs(runs: Sequence[Run | str | Path]) -> list[Run]:
    """Open runs, of which each has a name of its own; raises what `load_run` raises."""
    check(len(runs) > 0, "there are no runs; expected at least one", ProbeError)
    opened = [load_run(run) for run in runs]
    names = [run.name for run in opened]
    check(len(set(names)) == len(names), f"the runs are called {', '.join(names)}; expected "
          "different names, by which results tell them apart", ProbeError)
    return opened
