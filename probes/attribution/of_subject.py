"""`attribute`: which codes of a model does the answer hang on?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from latentcode.probes.attribution.of_model import attribute_model
from latentcode.probes.attribution.places import ATTRIBUTED
from latentcode.probes.attribution.result import AttributionResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split


@watched("passes")
def attribute(
    model: Model,
    problems: Problems = None,
    source: str | None = None,
    *,
    sites: Sequence[str] | str = ATTRIBUTED,
    split: Split = "ood",
    n: int | None = None,
    n_patched: int = 200,
    n_points: int = 4,
    n_checked: int = 40,
    n_ranked: int = 200,
    among: str = "vocabulary",
    step: int | None = None,
    batch_size: int | None = None,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> AttributionResult:
    """Attribute the source's answer to codes and values.

    See `latentcode.probes.attribution.attribute_model` for the equation.

    Args:
        model: See `subject`.
        problems: See `subject`; of prompts minimal pairs, or a factorial, with the columns that
            `PromptCounterfactuals` lists; default: the run's own task.
        source: Whose activations would be put in: `operation+operands`, another source of a
            factorial (`latentcode.tasks.counterfactuals`), or `interchange`, the minimal pair's;
            default: operation+operands, without a factorial interchange.
        sites: `code`, `value` or both.
        split: Problems that the attributions are means over.
        n: Problems drawn; those count which the model answers rightly, sources included; default:
            2,000, of prompts all, each of which is a base at most once.
        n_patched: How many of them single places and sets are patched in.
        n_points: Points on the way to the source at which the gradient is taken.
        n_checked: Places that are patched singly: so many of the largest estimates, and random
            others.
        n_ranked: Places, by attribution, of which a small set is made.
        among: Of prompts: whether the model's answer is the likeliest token of the `vocabulary` or
            the likelier of the two `answers`.
        step: The checkpoint of a run; default: the newest.
        batch_size: Problems at once; default: 250, of prompts 32.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of everything that is drawn.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (passes through the model done, most that there can be).

    Raises:
        LatentCodeError: What `subject` and `attribute_model` raise, and `ConfigError` for problems
            without minimal pairs.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, step=step, device=device, batch_size=batch_size)
    task = of.counterfactuals(among=among)
    return attribute_model(
        of.model(), task, source, sites=sites, split=of.split_name(split),
        n=of.n_of("n", n, 2_000, split), n_patched=n_patched, n_points=n_points,
        n_checked=n_checked, n_ranked=n_ranked, seed=seed,
        batch_size=of.patched_at_once(batch_size), n_bootstrap=n_bootstrap,
        meta={**of.settings, **({} if among == "vocabulary" else {"among": among})},
        progress=progress)
