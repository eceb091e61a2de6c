"""What is written: sources, means, differences, nothing, noise; and the controls of each.

A *patch* takes what is computed at a place in the patched run (`live`, so that what was written
in an earlier layer has had its effect) and returns what to put there, of the same shape. Where
it is put is the scope's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from latentcode.probes.interventions.references import References
from latentcode.probes.interventions.sites import SITES, Edit, Place
from latentcode.tasks.counterfactuals import OTHERS, MinimalPairs


def noise_like(x: Tensor, axis: int, generator: torch.Generator) -> Tensor:
    """Return random directions with the norms of x along an axis."""
    noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    return noise * x.norm(dim=axis, keepdim=True) / noise.norm(dim=axis, keepdim=True)


@dataclass(frozen=True)
class Clean:
    """What the model computes for a batch before anything is written.

    pairs       the B pairs of the batch that count: the model gives both answers
    answered    the logits of their sources
    sources     name of a batch of `MinimalPairs` -> place -> its activations [B, ...]
    right       name of a batch -> bool [B]: the model answers it rightly
    pool        place -> activations of the whole batch, to resample from
    own         place -> activations of the pairs themselves
    membership  which constituents the whole batch has, bool [N, S, C]
    """

    pairs: MinimalPairs
    answered: Tensor
    sources: Mapping[str, Mapping[Place, Tensor]]
    right: Mapping[str, Tensor]
    pool: Mapping[Place, Tensor]
    own: Mapping[Place, Tensor]
    membership: Tensor


@dataclass(frozen=True)
class Material:
    """What is at hand for one intervention on B bases.

    clean      the bases and their sources
    resampled  int64 [B], which of the pool has the source's constituent in the same slot; -1 none
    references means over training instances
    erasers    place -> what erases the label from activations, given the scope; or empty
    generator  for noise
    scope      bool [B, Q, K], the codes that are written
    third      int64 [B], a constituent that neither the base nor its source has, drawn among
               those that were measured in the slot; -1 none
    """

    clean: Clean
    resampled: Tensor
    references: References
    erasers: Mapping[Place, Edit]
    generator: torch.Generator
    scope: Tensor
    third: Tensor

    @property
    def pairs(self) -> MinimalPairs:
        return self.clean.pairs

    def mean(self, place: Place, constituent: Tensor) -> Tensor:
        """Return the mean activation of a constituent of each base in its slot."""
        return self.references.means[place][self.pairs.slot, constituent]

    def group(self, place: Place) -> Tensor:
        """Return the mean of random instances, as many as have the source's constituent."""
        return self.references.groups[place][self.pairs.slot, self.pairs.source_label]

    def others(self) -> Tensor:
        """Return another instance for each: a cyclic shift of a random order."""
        n = len(self.pairs)
        device = self.pairs.slot.device
        order = torch.randperm(n, generator=self.generator, device=device)
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        return other

    def any_constituent(self) -> Tensor:
        """Return constituents drawn at random from those that were measured in the slot."""
        seen = self.references.count[self.pairs.slot] > 0  # [B, C]
        keys = torch.rand(seen.shape, generator=self.generator, device=seen.device)
        return torch.where(seen, keys, -1.0).argmax(1)


@dataclass(frozen=True)
class PatchKind:
    """One way to patch.

    values       (material, place, live, alpha) -> what to put there
    description  one sentence for people
    control      whether nothing should come of it
    source       the batch of `MinimalPairs` that it comes from; "" for what comes from none
    needs        of the task or the material: `control`, `factorial`, `permuted` (sources), `means`,
                 `erasers`, `pool`, `another` (instance of the batch), `elsewhere` or nothing
    measured     whose constituent must have been measured: `base_label`, `source_label`, `third`
    real         it is a code that the model computed for some instance: nothing to renormalise
                 while a whole row is written
    elsewhere    written at another position than the one that differs
    pooled       one code for all positions: of codes alone
    frozen       all codes are held at what they are in the unpatched pass
    """

    values: Callable[[Material, Place, Tensor, float], Tensor]
    description: str
    control: bool = False
    source: str = ""
    needs: str = ""
    measured: tuple[str, ...] = ()
    real: bool = False
    elsewhere: bool = False
    pooled: bool = False
    frozen: bool = False


def _steer(m: Material, place: Place, live: Tensor, alpha: float) -> Tensor:
    return live + alpha * (m.mean(place, m.pairs.source_label) - m.mean(place, m.pairs.base_label))


def _steer_third(m: Material, place: Place, live: Tensor, alpha: float) -> Tensor:
    return live + alpha * (m.mean(place, m.third) - m.mean(place, m.pairs.base_label))


def _steer_random(m: Material, place: Place, live: Tensor, alpha: float) -> Tensor:
    step = m.mean(place, m.pairs.source_label) - m.mean(place, m.pairs.base_label)
    return live + alpha * noise_like(step, _vector(place, live), m.generator)


def _mean_of_any(m: Material, place: Place, live: Tensor, alpha: float) -> Tensor:
    return m.mean(place, m.any_constituent())


def _pooled(mean: Callable[[Material, Place], Tensor], whose: str, **properties: Any) -> PatchKind:
    """Return what writes a mean over the positions of the scope, too: one code for all of them."""
    def values(m: Material, place: Place, live: Tensor, alpha: float) -> Tensor:
        scope = m.scope[:, None].to(live.dtype)  # [B, 1, Q, K]
        total = (mean(m, place) * scope).sum((2, 3), keepdim=True)
        return (total / scope.sum((2, 3), keepdim=True)).expand_as(live)

    return PatchKind(values, f"the mean over {whose}, and over positions", needs="means",
                     pooled=True, **properties)


def _vector(place: Place, live: Tensor) -> int:
    return SITES[place[0]].vector % live.ndim


def _from_source(name: str, description: str, **properties: Any) -> PatchKind:
    """Return what writes the activations of a batch of `MinimalPairs`."""
    return PatchKind(lambda m, p, x, _: m.clean.sources[name][p], description, source=name,
                     real=True, **properties)


PATCHES: Mapping[str, PatchKind] = {
    "interchange": _from_source("sources", "the minimal pair's: another operation"),
    "control": _from_source("control", "a source's with the same constituents and fresh values",
                            control=True, needs="control"),
    **{name: _from_source(name, f"a source's with {what}", needs="factorial",
                          control=name == "unrelated") for name, what in OTHERS.items()},
    "permuted": _from_source("permuted", "the base's with its examples' values permuted",
                             control=True, needs="permuted"),
    "frozen": _from_source("operation+operands", f"a source's with {OTHERS['operation+operands']}, "
                           "while all codes are held", needs="factorial", frozen=True),
    "elsewhere": _from_source("sources", "the minimal pair's, at another position", control=True,
                              needs="elsewhere", elsewhere=True),
    "shuffled": PatchKind(lambda m, p, x, _: m.clean.sources["sources"][p][m.others()],
                          "the source's of another instance", control=True, source="sources",
                          needs="another", real=True),
    "resample": PatchKind(lambda m, p, x, _: m.clean.pool[p][m.resampled],
                          "another instance's that has the source's constituent", needs="pool",
                          real=True),
    "class_mean": PatchKind(lambda m, p, x, _: m.mean(p, m.pairs.source_label),
                            "the mean over instances with the source's constituent", needs="means",
                            measured=("source_label",)),
    "class_mean_base": PatchKind(lambda m, p, x, _: m.mean(p, m.pairs.base_label),
                                 "the mean over instances with the base's own constituent",
                                 control=True, needs="means", measured=("base_label",)),
    "class_mean_shuffled": PatchKind(_mean_of_any, "the mean of a constituent drawn at random",
                                     control=True, needs="means"),
    "class_mean_third": PatchKind(lambda m, p, x, _: m.mean(p, m.third),
                                  "the mean over instances with a third constituent", control=True,
                                  needs="means", measured=("third",)),
    "class_mean_group": PatchKind(lambda m, p, x, _: m.group(p),
                                  "the mean over as many instances drawn at random", control=True,
                                  needs="means", measured=("source_label",)),
    "class_mean_pooled": _pooled(lambda m, p: m.mean(p, m.pairs.source_label),
                                 "instances with the source's constituent",
                                 measured=("source_label",)),
    "class_mean_base_pooled": _pooled(lambda m, p: m.mean(p, m.pairs.base_label),
                                      "instances with the base's own constituent",
                                      control=True, measured=("base_label",)),
    "class_mean_third_pooled": _pooled(lambda m, p: m.mean(p, m.third),
                                       "instances with a third constituent", control=True,
                                       measured=("third",)),
    "class_mean_group_pooled": _pooled(lambda m, p: m.group(p),
                                       "as many instances drawn at random", control=True,
                                       measured=("source_label",)),
    "steer": PatchKind(_steer, "plus alpha times the difference of the two means", needs="means",
                       measured=("base_label", "source_label")),
    "steer_third": PatchKind(_steer_third, "plus alpha times the difference of a third "
                             "constituent's mean", control=True, needs="means",
                             measured=("base_label", "third")),
    "steer_random": PatchKind(_steer_random, "plus a random direction as long as that difference",
                              control=True, needs="means",
                              measured=("base_label", "source_label")),
    "zero_ablation": PatchKind(lambda m, p, x, _: torch.zeros_like(x), "zero"),
    "mean_ablation": PatchKind(lambda m, p, x, _: m.references.overall[p].expand_as(x),
                               "the mean over all training instances", needs="means"),
    "erase": PatchKind(lambda m, p, x, _: m.erasers[p](x), "the same without its label (LEACE)",
                       needs="erasers", measured=("base_label",)),
    "erase_shuffled": PatchKind(lambda m, p, x, _: m.erasers[p](x),
                                "the same without a shuffled label (LEACE)", control=True,
                                needs="erasers", measured=("base_label",)),
    "random": PatchKind(lambda m, p, x, _: noise_like(x, _vector(p, x), m.generator),
                        "a random one of equal norm", control=True),
    "identity": PatchKind(lambda m, p, x, _: x, "itself: nothing changes", control=True, real=True),
}
"""Ways to patch, by name."""


def lacked(patch: PatchKind, lacks: Collection[str]) -> str:
    """Return what of `Counterfactuals.lacking` a patch needs, "" where it can be written."""
    return next((name for name in (patch.needs, patch.source) if name in lacks), "")


def possible(patch: PatchKind, material: Material) -> Tensor:
    """Return which instances something can be written to, bool [B].

    Not those that have no other of their batch to take it from, whose constituents were not
    measured, or whose control the model itself answers wrongly: they do not count.
    """
    pairs = material.pairs
    rows = torch.ones_like(pairs.counts)
    if patch.needs == "pool":
        rows = material.resampled >= 0
    elif patch.needs in ("control", "factorial") and patch.source in material.clean.right:
        rows = material.clean.right[patch.source]
    elif patch.needs == "another" and len(pairs) == 1:
        rows = ~rows
    for name in patch.measured:
        if name == "third":
            rows = rows & (material.third >= 0)
        else:
            rows = rows & (material.references.count[pairs.slot, getattr(pairs, name)] > 0)
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
