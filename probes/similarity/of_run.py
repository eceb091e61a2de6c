"""Which labels have similar codes in a trained run, and how many heads do its codes use?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check
from latentcode.probes.common.extraction import extract_with_untrained
from latentcode.probes.common.own_labels import LabelFunction, names_of, own_labels
from latentcode.probes.similarity.of_codes import similarity_codes
from latentcode.probes.similarity.result import SimilarityResult
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import as_task, make_task


@watched("comparing codes")
def similarity(
    run: Run | str | Path,
    label: str | Mapping[str, LabelFunction] | None = None,
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
) -> SimilarityResult:
    """Which values of a label have similar codes in a trained run, and how many heads are used?

    run       a run, its folder, or a name of the zoo
    label     default: the last that the task names for probing, `rule` or `terms`; or a function
              of a batch, `{name: function}`, as in `decode`
    split     which combinations; the held-out ones, as in the paper's Fig. 5E and A8
    n         number of instances
    pairs     default: the paper's pair, the first of the task's
    layers    default: all
    task      what to draw instances from; default: the task's own choice for probing
    settings  of `similarity_codes`
    progress  called with (layers and pairs done, in all)

    Raises what `load_run`, `own_labels`, `extract` and `similarity_codes` raise.
    """
    run = load_run(run)
    own = make_task(run.config.task)
    source = as_task(task or own.probe_config)
    label = own.probe_labels[-1] if label is None else label
    names = names_of(label)
    check(len(names) == 1, f"label is {', '.join(map(str, names)) or 'empty'}; expected a single "
          "one", ProbeError)
    further = own_labels(label, source, [(split, n)], seed=seed, device=device)
    codes, untrained = extract_with_untrained(
        run, split, further[0], n=n, pairs=pairs, layers=layers, task=source, seed=seed,
        device=device)
    return similarity_codes(codes, names[0], untrained=untrained, seed=seed, progress=progress,
                            **settings)
