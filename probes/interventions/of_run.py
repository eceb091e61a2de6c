"""`intervene`: do the codes of a trained run cause its answers?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentcode.config import TaskConfig
from latentcode.devices import resolve_device
from latentcode.probes.common.of_run import meta_of
from latentcode.probes.interventions.intervention import Intervention
from latentcode.probes.interventions.of_model import intervene_model
from latentcode.probes.interventions.result import InterventionResult
from latentcode.probes.interventions.sites import has_constraint
from latentcode.probes.interventions.standard import standard_interventions
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import as_task, make_counterfactuals


@watched("forward passes")
def intervene(
    run: Run | str | Path,
    interventions: Sequence[Intervention] | Intervention | None = None,
    *,
    split: str = "ood",
    n: int = 2_000,
    task: TaskConfig | None = None,
    factorial: bool = True,
    among: str = "vocabulary",
    step: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> InterventionResult:
    """Do the codes of a trained run cause its answers, on held-out combinations?

    run      a run, its folder, or the name of a model of the zoo
    interventions  default: `standard_interventions`, all patches with their controls
    split    instances whose codes are overwritten; means and erasers come from `train`
    n        instances drawn; those count which the model answers rightly, source included
    task     what to draw from; default: the run's own
    factorial  draw natural sources, which differ in operation, operands and the rest
             (`latentcode.tasks.counterfactuals`), where the task offers them; without it, minimal
             pairs of any two operations
    among    of text without a factorial: whether the model's answer is the likeliest token of the
             `vocabulary` or, for models that rarely say either, the likelier of the two `answers`
    step     the checkpoint; default: the newest
    settings  of `intervene_model`: n_reference, batch_size, n_bootstrap

    Raises what `intervene_model` raises, and `ConfigError` for a task without minimal pairs.
    """
    run = load_run(run)
    own = as_task(run.config.task if task is None else task)
    model = run.load_model(step, device=str(resolve_device(device)))
    counterfactuals = make_counterfactuals(own, factorial=factorial)
    counterfactuals.answer_among(among)
    if interventions is None:
        interventions = standard_interventions(
            model.cfg.n_layers, model.cfg.n_heads, counterfactuals.scopes,
            has_constraint(model.cfg.normalization), counterfactuals.lacking,
            counterfactuals.places)
    meta = meta_of(run, own, step) | ({} if among == "vocabulary" else {"among": among})
    return intervene_model(model, counterfactuals, interventions, split=split, n=n, seed=seed,
                           meta=meta, progress=progress, **settings)
