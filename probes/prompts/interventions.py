"""`intervene_prompts`: do the codes of a language model cause what it says next?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from latentcode.errors import check
from latentcode.files.provenance import package_version
from latentcode.models.pretrained import layout, load_pretrained
from latentcode.probes.interventions.intervention import Intervention
from latentcode.probes.interventions.of_model import intervene_model
from latentcode.probes.interventions.patches import PATCHES
from latentcode.probes.interventions.result import InterventionResult
from latentcode.probes.interventions.standard import standard_interventions
from latentcode.progress import Progress, watched
from latentcode.prompts import Prompts
from latentcode.prompts.codes import LAST
from latentcode.prompts.pairs import Among, PromptCounterfactuals
from latentcode.seeds import checked_seed

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

WRITTEN = ("interchange", "control", "elsewhere", "shuffled", "random", "identity")


@watched("prompts")
def intervene_prompts(
    model: TransformerBridge | str | Path,
    prompts: Prompts | pd.DataFrame | str | Path,
    interventions: Sequence[Intervention] | Intervention | None = None,
    *,
    among: Among = "vocabulary",
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    batch_size: int = 32,
    prepend_bos: bool | None = None,
    n_bootstrap: int = 1_000,
    progress: Progress | None = None,
) -> InterventionResult:
    """Does a language model give the source's answer when the source's codes are written?

    model          a bridge, or what `load_pretrained` takes
    prompts        minimal pairs, with the columns that `PromptCounterfactuals` lists
    interventions  default: `prompt_interventions`
    among          whether the model's answer is the likeliest token of the `vocabulary`, or the
                   likelier of the two `answers`
    device, dtype  of a model that is loaded here
    batch_size     prompts at once, all of one layout; memory: the codes of so many prompts and
                   their sources in every layer that is written
    progress       called with (prompts passed through the model, those in all)

    Of prompts with a column `split`, those of `ood` are written to, and means and erasers are
    measured on those of `train`; without one, all serve for both. Pairs count where the model
    answers the prompt and the source rightly. See `PromptCounterfactuals` for the outcomes.

    Raises what `load_pretrained`, `PromptCounterfactuals` and `intervene_model` raise;
    `ConfigError` for an architecture that does not go on with what is written.
    """
    seed = checked_seed(seed)
    if isinstance(model, (str, Path)):
        model = load_pretrained(model, device=device, dtype=dtype)
    task = PromptCounterfactuals(model, prompts, among=among, prepend_bos=prepend_bos)
    if interventions is None:
        interventions = prompt_interventions(
            task, model.cfg.n_layers, layout(model).normalized)
    name = str(model.cfg.model_name)
    split = "ood" if "split" in task.prompts.labels else "prompts"
    check(LAST in model.hook_dict, f"the model has no hook {LAST}; expected a language model")
    with model.hooks(fwd_hooks=[(LAST, _last)]):
        return intervene_model(
            model, task, interventions, split=split, n=len(task.rows(split)),
            n_reference=0 if "means" in task.lacks else len(task.rows("train")), seed=seed,
            batch_size=batch_size, n_bootstrap=n_bootstrap, progress=progress, meta={
                "run": Path(name).name if Path(name).is_dir() else name, "kind": "softmax",
                "architecture": model.cfg.architecture,
                "dtype": str(next(model.parameters()).dtype), "prompts": task.prompts.digest(),
                "prepend_bos": task.begins, "among": among,
                "latentcode_version": package_version("latentcode")})


def prompt_interventions(
    task: PromptCounterfactuals, n_layers: int, normalized: bool = True
) -> tuple[Intervention, ...]:
    """Return what is written by default: the source's codes, and codes that change nothing.

    Of `standard_interventions`: the source's and the control's codes at pairs and rows, in each
    layer, in the upper half and in all, and all codes in all layers; another position, another
    base's source, noise and the identity at rows of the upper half. The patch `control` only
    where there are prompts for it, and renormalised codes only where `normalized` says that the
    model's codes of a query sum to 1. Means, erasure, single heads, values and residual streams
    have to be asked for.
    """
    every = tuple(range(n_layers))
    chosen = [
        i for i in standard_interventions(n_layers, 0, task.scopes, normalized, task.lacking)
        if i.patch in WRITTEN and i.site == "code" and PATCHES[i.patch].needs not in task.lacks
        and (i.scope != "everything" or i.layers == every)
        and (not i.renormalize or PATCHES[i.patch].real)]
    return (*chosen, Intervention("identity", "everything", every))


def _last(stream: Tensor, hook: Any) -> Tensor:
    """The logits of all tokens would be larger than everything else."""
    return stream[:, -1:]


__all__ = ["intervene_prompts", "prompt_interventions"]
