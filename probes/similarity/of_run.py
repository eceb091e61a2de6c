"""Which labels have similar codes in a trained run, and how many heads do its codes use?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentcode.config import TaskConfig
from latentcode.probes.common.extraction import extract_with_untrained
from latentcode.probes.similarity.of_codes import similarity_codes
from latentcode.probes.similarity.result import SimilarityResult
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import as_task, make_task


def similarity(
    run: Run | str | Path,
    label: str | None = None,
    *,
    split: str = "ood",
    n: int = 4_096,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    task: TaskConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> SimilarityResult:
    """Which values of a label have similar codes in a trained run, and how many heads are used?

    run       a run, its folder, or a name of the zoo
    label     default: the last that the task names for probing, `rule` or `terms`
    split     which combinations; the held-out ones, as in the paper's Fig. 5E and A8
    n         number of instances
    pairs     default: the paper's pair, the first of the task's
    layers    default: all
    task      what to draw instances from; default: the task's own choice for probing
    settings  of `similarity_codes`
    progress  called with (layers and pairs done, in all)

    Raises what `load_run`, `extract` and `similarity_codes` raise.
    """
    run = load_run(run)
    own = make_task(run.config.task)
    codes, untrained = extract_with_untrained(
        run, split, n=n, pairs=pairs, layers=layers, task=as_task(task or own.probe_config),
        seed=seed, device=device)
    return similarity_codes(
        codes, own.probe_labels[-1] if label is None else label, untrained=untrained, seed=seed,
        progress=progress, **settings)
