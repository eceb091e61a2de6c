"""Patches of one's own, by name, each tried on a small model when it is registered."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.config import LogicConfig
from latentcode.config.presets import model_for
from latentcode.errors import ConfigError, ProbeError, check, check_choice
from latentcode.models.config import with_kind
from latentcode.models.transformer import HookedTransformer
from latentcode.models.trials import try_function
from latentcode.probes.interventions.patches import PATCHES, PatchKind
from latentcode.probes.interventions.problem import Problem
from latentcode.probes.interventions.references import measure
from latentcode.probes.interventions.sites import SITES, Place, capture
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import OTHERS, Counterfactuals

Function = TypeVar("Function", bound=Callable[..., Tensor])
N = 5
"""Problems that a patch is tried on."""
PAIRED = {"interchange": "sources", "control": "control"}
"""Sources of a minimal pair, and the batches of `MinimalPairs` that they are."""


def register_patch(
    name: str,
    *,
    description: str | None = None,
    source: str | None = "interchange",
    control: bool = False,
    means: bool = False,
    sites: Collection[str] | str = tuple(SITES),
    replace: bool = False,
) -> Callable[[Function], Function]:
    """Make a patch of one's own known by a name: a decorator of its function.

        @lc.register_patch("halfway")
        def halfway(base, source, problem):
            return (base + source) / 2

        lc.intervene(run, interventions=lc.Patch("halfway", where="context", layers=(0, 1)))

    The function (base, source, problem) returns what is put there, of the shape of `base`: codes
    [B, H, Q, K], values or z [B, T, H, d], or residual streams [B, T, D]. `base` is what is
    computed at the place in the patched run, `source` what the model computes there for the source
    (None where the patch has none), `problem` a `Problem`: the pairs, the place, `alpha`, a
    generator for noise. Where it is put is the business of `lc.Patch`.

    description  one sentence; default: the first of the function's docstring
    source    whose activations it is given, and whose answer would come out: `interchange` (the
              minimal pair's), `control`, one of a factorial such as `operation+operands`, or None
    control   nothing should come of it
    means     it asks for means over training problems: `problem.mean(problem.pairs.source_label)`.
              Bases count whose own and whose source's constituents were measured
    sites     where it can be put: some of `code`, `value`, `z`, `residual`
    replace   take the place of an earlier patch of that name, as when a cell of a notebook runs
              again

    The function is tried on a small model at each site: its result has the shape and type of
    `base` and is finite, its gradients, where it has any, are finite, and it changes nothing that
    it is given. Raises `ConfigError` that says which of these fails, and for a name that is taken.
    """
    PATCHES.check_name(name)
    offered = (*PAIRED, *OTHERS)
    if source is not None:
        check_choice("source", source, offered)
    sites = as_tuple(sites)
    check(len(sites) > 0, f"sites of patch {name!r} are empty; expected some of {list(SITES)}")
    for site in sites:
        check_choice("site", site, SITES)
    of = "" if source is None else PAIRED.get(source, source)
    needs = "means" if means else ""
    measured = ("base_label", "source_label") if means else ()

    def register(value: Function) -> Function:
        first = (value.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        kind = PatchKind(
            value, description or first or f"what {getattr(value, '__name__', name)} returns",
            control=control, source=of, needs=needs, measured=measured, own=True, sites=sites)
        _try(name, kind)
        PATCHES.add(name, kind, replace=replace)
        return value

    return register


@cache
def _small() -> tuple[Any, Counterfactuals]:
    """Return a small model with fresh weights, and the pairs of its task."""
    config = LogicConfig(n_variables=3, n_examples=4)
    return HookedTransformer(with_kind(model_for(
        config, n_layers=1, d_model=8, n_heads=3, d_head=2, d_head_v=2, d_mlp=8), "hyla"),
        seed=0).eval(), make_counterfactuals(make_task(config))


def _try(name: str, kind: PatchKind) -> None:
    """Raise `ConfigError` unless a patch gives finite values at all its sites, in a small model."""
    model, task = _small()
    pairs = task.sample("train", N, torch.Generator().manual_seed(0))
    places: list[Place] = [(site, 0) for site in kind.sites]
    _, bases = capture(model, pairs.bases.inputs, places)
    sources = capture(model, pairs.batch(kind.source).inputs, places)[1] if kind.source else {}
    references = measure(model, task, places, n=64) if kind.needs == "means" else None
    for place in places:
        problem = Problem(
            pairs, {kind.source: sources}, task.scope("everything", pairs),
            torch.Generator().manual_seed(0), place, references=references)

        def call(base: Tensor, source: Tensor | None = None, problem: Problem = problem) -> Tensor:
            problem.generator.manual_seed(0)
            try:
                return kind.value(base, source, problem)
            except ProbeError as error:
                raise ConfigError(f"patch {name!r}: {error}") from error

        given = [bases[place], *([sources[place]] if kind.source else [])]
        try_function(f"patch {name!r}", call, tuple(bases[place].shape), *given,
                     note=f" at site {place[0]!r}")
