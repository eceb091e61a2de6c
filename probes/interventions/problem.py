"""What is at hand where something is patched: bases, sources, what was measured, and the place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from latentcode.errors import ProbeError
from latentcode.probes.interventions.references import References
from latentcode.probes.interventions.sites import SITES, Edit, Place
from latentcode.tasks.counterfactuals import MinimalPairs


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
class Problem:
    """B bases into which something is put, and whatever it can be made of.

    pairs      the bases, their sources and constituents (`MinimalPairs`)
    sources    name of a batch of the pairs -> place -> its activations [B, ...]
    scope      bool [B, Q, K], the codes that are written
    generator  for noise
    place      the site and layer at which something is put
    alpha      how far to steer
    references means over training instances; None where they are not measured
    erasers    place -> what erases the label from activations, given the scope; or empty
    pool       place -> activations of the whole batch, to resample from
    resampled  int64 [B], which of the pool has the source's constituent in the same slot; -1 none
    third      int64 [B], a constituent that neither the base nor its source has, drawn among
               those that were measured in the slot; -1 none
    """

    pairs: MinimalPairs
    sources: Mapping[str, Mapping[Place, Tensor]]
    scope: Tensor
    generator: torch.Generator
    place: Place = ("code", 0)
    alpha: float = 1.0
    references: References | None = None
    erasers: Mapping[Place, Edit] | None = None
    pool: Mapping[Place, Tensor] | None = None
    resampled: Tensor | None = None
    third: Tensor | None = None

    @property
    def measured(self) -> References:
        """The references, where a patch has said that it needs them."""
        assert self.references is not None
        return self.references

    def mean(self, constituent: Tensor) -> Tensor:
        """Return the mean activation of a constituent [B] of each base in its slot, [B, ...].

        `ProbeError` for a function that has not said that it needs them.
        """
        if self.references is None or self.place not in self.references.means:
            raise ProbeError(f"problem.mean is asked for at {self.place}, where no means are "
                             "measured; expected a patch that is registered with "
                             "lc.register_patch(..., means=True)")
        return self.measured.means[self.place][self.pairs.slot, constituent]

    def group(self) -> Tensor:
        """Return the mean of random instances, as many as have the source's constituent."""
        return self.measured.groups[self.place][self.pairs.slot, self.pairs.source_label]

    def others(self) -> Tensor:
        """Return another instance for each: a cyclic shift of a random order."""
        n = len(self.pairs)
        order = torch.randperm(n, generator=self.generator, device=self.pairs.slot.device)
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        return other

    def any_constituent(self) -> Tensor:
        """Return constituents drawn at random from those that were measured in the slot."""
        seen = self.measured.count[self.pairs.slot] > 0  # [B, C]
        keys = torch.rand(seen.shape, generator=self.generator, device=seen.device)
        return torch.where(seen, keys, -1.0).argmax(1)

    def noise(self, x: Tensor) -> Tensor:
        """Return random vectors as long as those of x, which is an activation of the place."""
        return noise_like(x, SITES[self.place[0]].vector % x.ndim, self.generator)


Value: TypeAlias = Callable[[Tensor, Tensor | None, Problem], Tensor]
"""(base, source, problem) -> what is put at a place.

base    what is computed there in the patched run, so that what was written in an earlier layer has
        had its effect
source  what the model computes there for the source; None for a patch that comes from none
result  of the shape of the base. Where it is put is not its business
"""
