"""`knn_purity`: what do the codes of a trained run separate?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentcode.config import TaskConfig
from latentcode.probes.common.extraction import extract_with_untrained
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.knn_purity.of_codes import knn_purity_codes
from latentcode.probes.knn_purity.result import KNNPurityResult
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import as_task, make_task


@watched("comparing neighbours")
def knn_purity(
    run: Run | str | Path,
    labels: Labels | None = None,
    *,
    split: str = "ood",
    n: int = 4_096,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | int | None = None,
    task: TaskConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> KNNPurityResult:
    """What do the codes of a trained run separate: which label do the nearest neighbours share?

    run       a run, its folder, or a name of the zoo
    labels    default: all that neighbours can agree on, also the operands and the model's loss; or
              functions of a batch, `{name: function}`, as in `decode`
    split     which combinations; default: the held-out ones
    n         number of instances
    pairs     default: the paper's pair, the first of the task's
    layers    default: all
    task      what to draw instances from; default: the task's own choice for probing
    settings  of `knn_purity_codes`
    progress  called with (layers and pairs done, in all)

    Raises what `load_run`, `own_labels`, `extract` and `knn_purity_codes` raise.
    """
    run = load_run(run)
    source = as_task(task or make_task(run.config.task).probe_config)
    further = own_labels(labels, source, [(split, n)], seed=seed, device=device)
    codes, untrained = extract_with_untrained(
        run, split, further[0], n=n, pairs=pairs, layers=layers, task=source, seed=seed,
        device=device)
    return knn_purity_codes(codes, None if labels is None else names_of(labels),
                            untrained=untrained, seed=seed, progress=progress, **settings)
