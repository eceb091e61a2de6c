"""How do the codes of a trained run lie, in two dimensions?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentcode.arguments import as_tuple
from latentcode.codes.of_tasks import extract
from latentcode.config import TaskConfig
from latentcode.errors import ProbeError, check
from latentcode.probes.common.labels import single_labels
from latentcode.probes.common.own_labels import Labels, names_of, own_labels
from latentcode.probes.projection.methods import settings_of
from latentcode.probes.projection.of_codes import project_codes
from latentcode.probes.projection.result import ProjectionResult
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import as_task, make_task


@watched("projecting")
def project(
    run: Run | str | Path,
    labels: Labels | None = None,
    *,
    method: str = "tsne",
    splits: Sequence[str] = ("ood",),
    n: int = 2_000,
    pairs: Sequence[str] | None = None,
    layers: Sequence[int] | int | None = None,
    task: TaskConfig | None = None,
    seed: int = 0,
    device: str = "cpu",
    cache: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> ProjectionResult:
    """How do the codes of a trained run lie, and do those of one label lie together?

    run       a run, its folder, or a name of the zoo
    labels    what colours the points; default: those single columns that the task names for
              probing, such as rule or term_1; or functions of a batch, as in `decode`
    method    `tsne`, `umap` or `pca`, with its `settings`
    splits    the one that the planes are fitted to, then others, which are placed in them
    n         instances of each split
    pairs     default: the paper's pair, the first of the task's
    layers    default: all
    task      what to draw instances from; default: the task's own choice for probing
    cache     folder of the cache; default: `default_cache()`
    progress  called with (hundredths done, hundredths in all)

    Raises what `load_run`, `own_labels`, `extract` and `project_codes` raise.
    """
    splits = as_tuple(splits)
    check(len(splits) > 0, "splits is empty; expected at least one", ProbeError)
    settings_of(method, **settings)  # a wrong name is told before anything is extracted
    run = load_run(run)
    own = make_task(run.config.task)
    source = as_task(task or own.probe_config)
    further = own_labels(labels, source, [(split, n) for split in splits], seed=seed, device=device)
    codes = [extract(run, split, n=n, pairs=pairs, layers=layers, task=source, seed=seed,
                     device=device).with_labels(**values)
             for split, values in zip(splits, further, strict=True)]
    names = single_labels(codes[0], own.probe_labels) if labels is None else names_of(labels)
    return project_codes(codes[0], names, method=method, others=codes[1:], seed=seed, cache=cache,
                         progress=progress, **settings)
