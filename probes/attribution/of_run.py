"""`attribute`: which codes of a trained run does the answer hang on?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentcode.config import TaskConfig
from latentcode.devices import resolve_device
from latentcode.probes.attribution.of_model import attribute_model
from latentcode.probes.attribution.places import ATTRIBUTED
from latentcode.probes.attribution.result import AttributionResult
from latentcode.probes.common.of_run import meta_of
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import as_task, make_counterfactuals


@watched("passes")
def attribute(
    run: Run | str | Path,
    source: str = "operation+operands",
    *,
    sites: Sequence[str] | str = ATTRIBUTED,
    split: str = "ood",
    n: int = 2_000,
    n_patched: int = 200,
    task: TaskConfig | None = None,
    step: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> AttributionResult:
    """Which codes, and which values, does it hang on that the answer becomes the source's?

    run      a run, its folder, or the name of a model of the zoo
    source   whose activations would be written: `operation+operands`, another source of a
             factorial (`latentcode.tasks.counterfactuals`), or `interchange`, the minimal pair's
    sites    `code`, `value` or both
    split    instances that the attributions are means over
    n        instances drawn; those count which the model answers rightly, sources included
    n_patched  how many of them single places and sets are written into
    task     what to draw from; default: the run's own
    step     the checkpoint; default: the newest
    settings of `attribute_model`: n_checked, n_ranked, batch_size, n_bootstrap

    Raises what `attribute_model` raises, and `ConfigError` for a task without minimal pairs.
    """
    run = load_run(run)
    own = as_task(run.config.task if task is None else task)
    counterfactuals = make_counterfactuals(own)
    model = run.load_model(step, device=str(resolve_device(device)))
    return attribute_model(model, counterfactuals, source, sites=sites, split=split, n=n,
                           n_patched=n_patched, seed=seed, meta=meta_of(run, own, step),
                           progress=progress, **settings)
