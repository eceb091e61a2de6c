"""One call from a trained run to what its codes cause: the standard interventions and controls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from latentcode.config import TaskConfig, config_hash, to_dict
from latentcode.devices import resolve_device
from latentcode.models.config import kind_of
from latentcode.probes.interventions.intervention import Intervention
from latentcode.probes.interventions.of_model import intervene_model
from latentcode.probes.interventions.references import ERASABLE
from latentcode.probes.interventions.result import InterventionResult
from latentcode.probes.interventions.writes import WRITES
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.tasks import make_counterfactuals, make_task


def intervene(
    run: Run | str | Path,
    interventions: Sequence[Intervention] | None = None,
    *,
    split: str = "ood",
    n: int = 2_000,
    task: TaskConfig | None = None,
    step: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> InterventionResult:
    """Do the codes of a trained run cause its answers, on held-out combinations?

    run      a run, its folder, or the name of a model of the zoo
    interventions  default: `standard_interventions`, all ways to write with their controls
    split    instances whose codes are overwritten; means and erasers come from `train`
    n        instances drawn; those count which the model answers rightly, donor included
    task     what to draw from; default: the run's own
    step     the checkpoint; default: the newest
    settings  of `intervene_model`: n_reference, batch_size, n_bootstrap

    Raises what `intervene_model` raises, and `ConfigError` for a task without minimal pairs.
    """
    run = load_run(run)
    own = make_task(run.config.task if task is None else task)
    model = run.load_model(step, device=str(resolve_device(device)))
    counterfactuals = make_counterfactuals(own)
    if interventions is None:
        interventions = standard_interventions(
            model.cfg.n_layers, model.cfg.n_heads, counterfactuals.scopes,
            model.cfg.normalization != "none", counterfactuals.lacks)
    meta = {"run": run.name, "run_id": run.id, "kind": kind_of(run.config.model),
            "config_hash": config_hash(run.config), "task": to_dict(own.config),
            "step": run.checkpoints()[-1] if step is None else step}
    return intervene_model(model, counterfactuals, interventions, split=split, n=n, seed=seed,
                           meta=meta, progress=progress, **settings)


def layer_sets(n_layers: int) -> tuple[tuple[int, ...], ...]:
    """Return each layer alone, the upper half, and all."""
    every = tuple(range(n_layers))
    sets = [*((layer,) for layer in every), every[n_layers // 2:], every]
    return tuple(dict.fromkeys(sets))


def standard_interventions(
    n_layers: int, n_heads: int, scopes: Sequence[str], normalized: bool = True,
    lacks: Collection[str] = (),
) -> tuple[Intervention, ...]:
    """Return every way to write, with its controls, once over.

    - the minimal pair's codes and the same constituents' (control), at every scope and layer, in
      the upper half of the layers and in all;
    - every other way to write, with its controls, at the response's row in the upper half of the
      layers; steering by 1, 2 and 4 times the difference; what is no real code both raw and
      (where `normalized` says that the model's codes obey a constraint) renormalised;
    - the donor's codes of one head alone, for every head: is one of them doing it all?
    - labels erased at every scope that allows it;
    - values (of all keys: a row sees them all) and residual streams in place of codes.

    lacks  what the task does not offer (`Counterfactuals.lacks`) is left out
    """
    upper, every = tuple(range(n_layers // 2, n_layers)), tuple(range(n_layers))
    chosen = [Intervention(write, scope, layers)
              for scope in scopes for layers in layer_sets(n_layers)
              for write in ("donor", "same")]
    for name, write in WRITES.items():
        if write.needs == "erasers":
            chosen += [Intervention(name, scope, upper) for scope in scopes if scope in ERASABLE]
            continue
        alphas = (1.0, 2.0, 4.0) if name.startswith("steer") else (1.0,)
        for alpha in alphas:
            chosen.append(Intervention(name, "row", upper, alpha=alpha))
            if normalized and not write.real and name != "zero":
                chosen.append(Intervention(name, "row", upper, alpha=alpha, renormalize=True))
    chosen += [Intervention("donor", "row", upper, heads=(head,)) for head in range(n_heads)]
    chosen += [Intervention(name, "everything", every)
               for name in ("shuffled", "transplant", "random")]
    if normalized:  # a pair alone breaks the sum over keys of a softmax
        chosen += [Intervention(write, scope, upper, renormalize=True)
                   for scope in scopes if scope.startswith("pair") for write in ("donor", "same")]
    chosen += [Intervention(write, scope, layers, site=site)
               for site, scope, layers in (
                   ("value", "everything", every[:1]), ("value", "everything", upper),
                   ("value", "everything", every),
                   ("residual", "row", upper), ("residual", "row", every),
                   ("residual", "everything", every[:1]), ("residual", "everything", upper))
               for write in ("donor", "same")]
    return tuple(i for i in dict.fromkeys(chosen) if WRITES[i.write].needs not in lacks)
