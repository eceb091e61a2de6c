"""What the verbs read out of runs: the codes, and those of the initial weights beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentcode.arguments import as_tuple
from latentcode.codes import LatentCodes
from latentcode.codes.of_tasks import extract
from latentcode.errors import ProbeError, check
from latentcode.runs import Run
from latentcode.runs.named import load_run


def extract_with_untrained(
    run: Run, split: str, own: Mapping[str, Any] | None = None, **reading: Any
) -> tuple[LatentCodes, LatentCodes]:
    """Return a run's codes with residual streams, and those of its initial weights.

    own      further labels of these instances, for both
    reading  what `extract` takes
    """
    return (extract(run, split, residuals=True, **reading).with_labels(**(own or {})),
            extract(run, split, untrained=True, **reading).with_labels(**(own or {})))


def load_runs(
    runs: Sequence[Run | str | Path] | Run | str | Path, least: int = 1
) -> list[Run]:
    """Open one run or several, at least so many, of which each has a name of its own.

    Raises what `load_run` raises, and `ProbeError` for too few and for a name that is repeated.
    """
    given = as_tuple(runs)
    check(len(given) >= least, f"{len(given)} {'run is' if len(given) == 1 else 'runs are'} given: "
          f"{', '.join(map(str, given)) or 'none'}; expected at least {least}", ProbeError)
    opened = [load_run(run) for run in given]
    names = [run.name for run in opened]
    check(len(set(names)) == len(names), f"the runs are called {', '.join(names)}; expected "
          "different names, by which results tell them apart", ProbeError)
    return opened
