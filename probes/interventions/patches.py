"""What is put there: sources, means, differences, nothing, noise, and the controls of each.

A user adds to these with `register_patch`. Each is a function of the activation that is computed
in the patched run, of the source's, and of the problem (`Problem`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from latentcode.probes.interventions.problem import Clean, Problem, Value
from latentcode.probes.interventions.sites import SITES
from latentcode.registry import Registry
from latentcode.tasks.counterfactuals import OTHERS, MinimalPairs


@dataclass(frozen=True)
class PatchKind:
    """One way to patch.

    value        (base, source, problem) -> what to put there
    description  one sentence for people
    control      whether nothing should come of it
    source       the batch of `MinimalPairs` that it comes from; "" for what comes from none
    needs        of the problem, beside a source: `means`, `erasers`, `pool`, `another` (instance of
                 the batch), `elsewhere` (another position than the one that differs) or nothing
    measured     whose constituent must have been measured: `base_label`, `source_label`, `third`
    real         it is a code that the model computed for some instance: nothing to renormalise
                 while a whole row is written
    pooled       one code for all positions
    frozen       all codes are held at what they are in the unpatched pass
    own          a user's, of which nothing is known: what it returns is checked
    sites        where it can be put
    as_is        it is the source's activation, whatever is computed at the place
    steers       `alpha` says how far it goes
    """

    value: Value
    description: str
    control: bool = False
    source: str = ""
    needs: str = ""
    measured: tuple[str, ...] = ()
    real: bool = False
    pooled: bool = False
    frozen: bool = False
    own: bool = False
    sites: tuple[str, ...] = tuple(SITES)
    as_is: bool = False
    steers: bool = False


def _source(base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
    assert source is not None
    return source


def _shuffled(base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
    return _source(base, source, problem)[problem.others()]


def _resample(base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
    assert problem.pool is not None
    return problem.pool[problem.place][problem.resampled]


def _erase(base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
    assert problem.erasers is not None
    return problem.erasers[problem.place](base)


def _steer(base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
    pairs = problem.pairs
    return base + problem.alpha * (problem.mean(pairs.source_label)
                                   - problem.mean(pairs.base_label))


def _steer_third(base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
    assert problem.third is not None
    return base + problem.alpha * (problem.mean(problem.third)
                                   - problem.mean(problem.pairs.base_label))


def _steer_random(base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
    step = problem.mean(problem.pairs.source_label) - problem.mean(problem.pairs.base_label)
    return base + problem.alpha * problem.noise(step)


Mean = Callable[[Problem], Tensor]
_MEANS: dict[str, tuple[Mean, str, dict[str, Any]]] = {
    "class_mean": (lambda p: p.mean(p.pairs.source_label),
                   "instances with the source's constituent", {"measured": ("source_label",)}),
    "class_mean_base": (lambda p: p.mean(p.pairs.base_label),
                        "instances with the base's own constituent",
                        {"control": True, "measured": ("base_label",)}),
    "class_mean_third": (lambda p: p.mean(p.third),  # type: ignore[arg-type]
                         "instances with a third constituent",
                         {"control": True, "measured": ("third",)}),
    "class_mean_group": (lambda p: p.group(), "as many instances drawn at random",
                         {"control": True, "measured": ("source_label",)}),
}
"""Means over training instances: of whom, and what they need."""


def _mean(name: str) -> PatchKind:
    mean, whose, properties = _MEANS[name]
    return PatchKind(lambda base, source, problem: mean(problem), f"the mean over {whose}",
                     needs="means", **properties)


def _pooled(name: str) -> PatchKind:
    """Return what puts a mean over the positions of the scope, too: one code for all of them."""
    mean, whose, properties = _MEANS[name]

    def value(base: Tensor, source: Tensor | None, problem: Problem) -> Tensor:
        scope = problem.scope[:, None].to(base.dtype)  # [B, 1, Q, K]
        total = (mean(problem) * scope).sum((2, 3), keepdim=True)
        return (total / scope.sum((2, 3), keepdim=True)).expand_as(base)

    return PatchKind(value, f"the mean over {whose}, and over positions", needs="means",
                     pooled=True, sites=("code",), **properties)


def _from_source(name: str, description: str, **properties: Any) -> PatchKind:
    """Return what puts the activations of a batch of `MinimalPairs`."""
    return PatchKind(_source, description, source=name, real=True, as_is=True, **properties)


PATCHES: Registry[PatchKind] = Registry("patch", "lc.register_patch", {
    "interchange": _from_source("sources", "the minimal pair's: another operation"),
    "control": _from_source("control", "a source's with the same constituents and fresh values",
                            control=True),
    **{name: _from_source(name, f"a source's with {what}", control=name == "unrelated")
       for name, what in OTHERS.items()},
    "permuted": _from_source("permuted", "the base's with its examples' values permuted",
                             control=True),
    "frozen": _from_source("operation+operands", f"a source's with {OTHERS['operation+operands']}, "
                           "while all codes are held", frozen=True,
                           sites=("residual",)),
    "held": _from_source("bases", "the base's own, as in the unpatched pass", control=True),
    "elsewhere": _from_source("sources", "the minimal pair's, at another position", control=True,
                              needs="elsewhere"),
    "shuffled": PatchKind(_shuffled, "the source's of another instance", control=True,
                          source="sources", needs="another", real=True),
    "resample": PatchKind(_resample, "another instance's that has the source's constituent",
                          needs="pool", real=True),
    **{name: _mean(name) for name in ("class_mean", "class_mean_base")},
    "class_mean_shuffled": PatchKind(
        lambda base, source, problem: problem.mean(problem.any_constituent()),
        "the mean of a constituent drawn at random", control=True, needs="means"),
    **{name: _mean(name) for name in ("class_mean_third", "class_mean_group")},
    **{f"{name}_pooled": _pooled(name) for name in _MEANS},
    "steer": PatchKind(_steer, "plus alpha times the difference of the two means", needs="means",
                       measured=("base_label", "source_label"), steers=True),
    "steer_third": PatchKind(_steer_third, "plus alpha times the difference of a third "
                             "constituent's mean", control=True, needs="means",
                             measured=("base_label", "third"), steers=True),
    "steer_random": PatchKind(_steer_random, "plus a random direction as long as that difference",
                              control=True, needs="means",
                              measured=("base_label", "source_label"), steers=True),
    "zero_ablation": PatchKind(lambda base, source, problem: torch.zeros_like(base), "zero"),
    "mean_ablation": PatchKind(
        lambda base, source, problem: problem.measured.overall[problem.place].expand_as(base),
        "the mean over all training instances", needs="means"),
    "erase": PatchKind(_erase, "the same without its label (LEACE)", needs="erasers",
                       measured=("base_label",), sites=("code",)),
    "erase_shuffled": PatchKind(_erase, "the same without a shuffled label (LEACE)", control=True,
                                needs="erasers", measured=("base_label",), sites=("code",)),
    "random": PatchKind(lambda base, source, problem: problem.noise(base),
                        "a random one of equal norm", control=True),
    "identity": PatchKind(lambda base, source, problem: base, "itself: nothing changes",
                          control=True, real=True),
})
"""Ways to patch, by name; `register_patch` adds to them."""


def lacked(patch: PatchKind, lacks: Collection[str]) -> str:
    """Return what of `Counterfactuals.lacking` a patch needs, "" where it can be written."""
    factorial = ("factorial",) if patch.source in OTHERS else ()
    return next((name for name in (patch.needs, patch.source, *factorial) if name in lacks), "")


def possible(patch: PatchKind, problem: Problem, clean: Clean) -> Tensor:
    """Return which instances something can be written to, bool [B].

    Not those that have no other of their batch to take it from, whose constituents were not
    measured, or whose control the model itself answers wrongly: they do not count.
    """
    pairs = problem.pairs
    rows = torch.ones_like(pairs.counts)
    if patch.source in ("control", *OTHERS) and patch.source in clean.right:
        rows = clean.right[patch.source]
    if patch.needs == "pool":
        assert problem.resampled is not None
        rows = problem.resampled >= 0
    elif patch.needs == "another" and len(pairs) == 1:
        rows = ~rows
    for name in patch.measured:
        if name == "third":
            assert problem.third is not None
            rows = rows & (problem.third >= 0)
        else:
            count = problem.measured.count
            rows = rows & (count[pairs.slot, getattr(pairs, name)] > 0)
    return rows


def thirds(pairs: MinimalPairs, count: Tensor, generator: torch.Generator) -> Tensor:
    """Return for each base a measured constituent that is neither its own nor its source's.

    count float [slot, constituent] -> int64 [B], uniform; -1 where there is none
    """
    keys = torch.rand(len(pairs), count.shape[1], generator=generator, device=pairs.slot.device)
    keys = torch.where(count[pairs.slot] > 0, keys, -1.0)
    taken = torch.stack([pairs.base_label, pairs.source_label], 1)
    best = keys.scatter(1, taken, -1.0).max(1)
    return torch.where(best.values >= 0.0, best.indices, -1)


def resample(
    pool_membership: Tensor, pairs: MinimalPairs, generator: torch.Generator
) -> Tensor:
    """Return for each base one of a pool that has its source's constituent in its slot.

    pool_membership bool [N, S, C] -> int64 [B], -1 where the pool has none. (An instance is never
    its own, because it lacks the source's constituent.)
    """
    fits = pool_membership[:, pairs.slot, pairs.source_label].T  # [B, N]
    keys = torch.rand(fits.shape, generator=generator, device=fits.device)
    best = torch.where(fits, keys, -1.0).max(1)
    return torch.where(best.values >= 0.0, best.indices, -1)
