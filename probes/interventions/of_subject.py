"""`intervene`: do the codes of a model cause its answers?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latentcode.errors import ConfigError, check
from latentcode.models.pretrained import layout
from latentcode.probes.interventions.of_model import intervene_model
from latentcode.probes.interventions.patch import Added
from latentcode.probes.interventions.result import InterventionResult
from latentcode.probes.interventions.sites import has_constraint, normalization_of
from latentcode.probes.interventions.standard import (
    first_interventions,
    prompt_interventions,
    standard_interventions,
)
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject
from latentcode.subjects.of_prompts import PromptSubject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split


@watched("forward passes")
def intervene(
    model: Model,
    problems: Problems = None,
    interventions: Sequence[Added] | Added | None = None,
    *,
    whole: bool = False,
    split: Split = "ood",
    n: int | None = None,
    n_reference: int | None = None,
    factorial: bool = True,
    among: str = "vocabulary",
    step: int | None = None,
    batch_size: int | None = None,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> InterventionResult:
    """Measure what the codes of a model cause, on held-out combinations.

    Every outcome is compared with the hooked, unpatched pass over the same batch.

    Args:
        model: See `subject`.
        problems: See `subject`; of prompts minimal pairs, or a factorial, with the columns that
            `PromptCounterfactuals` lists; default: the run's own task.
        interventions: Default: `first_interventions`, which tell whether codes cause the answer,
            and whether they carry the operation or the answer alone; of prompts
            `prompt_interventions`.
        whole: In place of the default: `standard_interventions`, all patches with their controls,
            over layers and scopes.
        split: Combinations whose codes are overwritten; means and erasers come from `train`.
            Prompts without a column `split` serve for both.
        n: Problems drawn; those count which the model answers rightly, source included; default:
            2,000, of prompts all, each of which is a base at most once.
        n_reference: Training problems for means and erasers; default: 4,096, of prompts all.
        factorial: Draw natural sources, which differ in operation, operands and the rest
            (`latentcode.tasks.counterfactuals`), where the problems offer them; without it, minimal
            pairs of any two operations.
        among: Of text without a factorial, and of prompts: whether the model's answer is the
            likeliest token of the `vocabulary` or, for models that rarely say either, the likelier
            of the two `answers`.
        step: The checkpoint of a run; default: the newest.
        batch_size: Problems at once; default: 250, of prompts 32.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of everything that is drawn.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (problems passed through the model, those in all).

    Raises:
        LatentCodeError: What `subject` and `intervene_model` raise, and `ConfigError` for a task
            without minimal pairs, for prompts that are none, and for an architecture that does not
            go on with what is written.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, step=step, device=device, batch_size=batch_size)
    task = of.counterfactuals(factorial=factorial, among=among)
    patched = of.model()
    prompts = isinstance(of, PromptSubject)
    check(not whole or interventions is None, "whole is True, and interventions are given; "
          "expected one or the other", ConfigError)
    if interventions is None:
        config = patched.cfg
        normalized = has_constraint(normalization_of(patched)) and layout(patched).normalized
        if whole:
            interventions = standard_interventions(
                of.layers, config.n_heads, task.scopes, normalized, task.lacking,
                task.places)
        elif prompts:
            interventions = prompt_interventions(task, of.layers, normalized)
        else:
            interventions = first_interventions(of.layers, task.scopes, task.lacking)
    return intervene_model(
        patched, task, interventions, split=of.split_name(split),
        n=of.n_of("n", n, 2_000, split),
        n_reference=(0 if "means" in task.lacks
                     else of.n_of("n_reference", n_reference, 4_096, "train")),
        seed=seed, batch_size=of.patched_at_once(batch_size), n_bootstrap=n_bootstrap,
        progress=progress, meta={
            **of.settings, **({} if among == "vocabulary" and not prompts else {"among": among})})
