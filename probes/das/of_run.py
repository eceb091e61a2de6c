"""`das`, distributed alignment search: in a trained run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentcode.config import TaskConfig
from latentcode.devices import resolve_device
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.of_run import meta_of
from latentcode.probes.das.of_model import SEARCHES, das_model
from latentcode.probes.das.result import DASResult
from latentcode.progress import Progress, watched
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import as_task, make_counterfactuals


@watched("searches")
def das(
    run: Run | str | Path,
    objective: str | Sequence[str] = "operation",
    *,
    site: str = "code",
    layer: int | None = None,
    rank: int | Sequence[int] = 4,
    searches: Sequence[str] = SEARCHES,
    split: str = "ood",
    n_train: int = 2_048,
    n: int = 600,
    task: TaskConfig | None = None,
    step: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
    **settings: Any,
) -> DASResult:
    """Is there a subspace of a run's codes whose exchange brings the source's operation alone?

    run        a run, its folder, or the name of a model of the zoo
    objective  `operation`, towards B(x), `operands`, towards A(x'), or both; of a source with
               another operation B and other operands x'
    site, layer  `code`, the row of the response in a layer, or `residual`, the stream of the
               response's token that enters the layer; layer: default the last
    rank       dimensions of the subspace, or several numbers of them
    searches   of `trained`, `shuffled` and `untrained` (controls; see `DASResult`)
    split      whose pairs the subspaces are scored on; they are trained on those of `train`
    n_train, n  pairs drawn for training and scoring
    task       what to draw from; default: the run's own
    step       the checkpoint; default: the newest
    progress   called with (searches done, in all)
    settings   of `das_model`: steps, batch_size, learning_rate, n_bootstrap

    Raises what `das_model` raises, and `ConfigError` for a task without minimal pairs.
    """
    run = load_run(run)
    own = as_task(run.config.task if task is None else task)
    place = resolve_device(device)
    model = run.load_model(step, device=str(place))
    untrained = HookedTransformer(run.config.model, seed=run.config.training.seed).to(place)
    return das_model(
        model, make_counterfactuals(own), objective, site=site, layer=layer, rank=rank,
        searches=searches, untrained=untrained, split=split, n_train=n_train, n=n, seed=seed,
        meta=meta_of(run, own, step), progress=progress, **settings)
