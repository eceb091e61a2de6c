"""What a model computes for instances before and after something is written, and for controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from latentcode.errors import ProbeError, check
from latentcode.probes.interventions.bench.cells import cells, where
from latentcode.probes.interventions.bench.instances import Instances
from latentcode.probes.interventions.bench.patch import Patch
from latentcode.probes.interventions.patches import noise_like
from latentcode.probes.interventions.sites import SITES, Place, capture, run_patched
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import MinimalPairs


@dataclass(frozen=True)
class Passes:
    """N instances to which the same is written, and with each d draws of every control.

    A row is an instance and a patch: first what was asked for (N), then d sources with the same
    constituents, d unrelated instances and d random codes for each (N d each, those of an instance
    side by side), at last the instances' own codes (N).

    pairs    the N minimal pairs
    patches  the name of each row's patch
    draws    which of the draws of its control a row is
    owner    int64 [rows], the instance of each row
    source   logits of the sources that are written [N, ...]
    clean, patched  logits of the rows before and after, computed side by side
    before, after   place -> codes of the rows before and after
    """

    pairs: MinimalPairs
    patches: tuple[str, ...]
    draws: tuple[int, ...]
    owner: Tensor
    source: Tensor
    clean: Tensor
    patched: Tensor
    before: Mapping[Place, Tensor]
    after: Mapping[Place, Tensor]

    @property
    def exact(self) -> bool:
        """Whether own codes, written back, leave all logits as they are, bit for bit."""
        n = len(self.pairs)
        return torch.equal(self.clean[-n:], self.patched[-n:])


def passes(
    bench: Instances, patches: Sequence[Patch], pairs: Sequence[MinimalPairs], draws: int
) -> Passes:
    """Write to several instances in one pass, and beside it `draws` times every control.

    patches  alike but for instance and target
    pairs    the minimal pairs of each patch, at least `draws`
    """
    patch, n = patches[0], len(patches)
    one = MinimalPairs.cat([drawn[:1] for drawn in pairs])
    same = Batch.cat([drawn[:draws].control for drawn in pairs])
    generators = [bench.generator("noise", w.instance, w.which, w.target) for w in patches]
    unrelated = Batch.cat([bench.unrelated(w.instance, generator, draws)
                           for w, generator in zip(patches, generators, strict=True)])
    other = bench.rows([w.instance if w.other is None else w.other for w in patches])
    logits, codes = capture(bench.model, torch.cat([batch.inputs for batch in (
        one.bases, one.batch(patch.source), other, same, unrelated)]), bench.places)
    asked = _asked(bench, patch, codes, one)
    every = torch.arange(n, device=bench.device)
    drawn = every.repeat_interleave(draws)
    owner = torch.cat([every, drawn, drawn, drawn, every])

    def values(place: Place, live: Tensor) -> Tensor:
        mine, _, _, noisy, own = live.split([n, n * draws, n * draws, n * draws, n])
        noise = [noise_like(x, SITES["code"].vector, generator)
                 for x, generator in zip(noisy.split(draws), generators, strict=True)]
        return torch.cat([asked(place, mine), codes[place][3 * n:], *noise, own])

    scope = cells(bench.task, patch, one)[owner]
    edits = where(patch).edits(bench.model, scope, values)
    after: dict[Place, Tensor] = {}

    def written(place: Place, live: Tensor) -> Tensor:
        # Own codes stay as they are, whatever their constraint does to last digits.
        after[place] = (torch.cat([edits[place](live)[:-n], live[-n:]]) if place in edits
                        else live)
        return after[place]

    inputs = one.bases.inputs[owner]
    # Instances of one pass are compared: the last digits depend on how many are computed.
    clean, before = capture(bench.model, inputs, bench.places)
    patched = run_patched(bench.model, inputs, {
        place: partial(written, place) for place in bench.places})
    check(bool(patched.isfinite().all()), f"{patch} gives logits that are not finite", ProbeError)
    controls = ("control", "unrelated", "random")
    return Passes(
        one, (patch.what,) * n + tuple(name for name in controls for _ in range(n * draws))
        + ("identity",) * n, (0,) * n + tuple(range(draws)) * (n * len(controls)) + (0,) * n,
        owner, logits[n:2 * n], clean, patched, before, after)


def _asked(
    bench: Instances, patch: Patch, codes: Mapping[Place, Tensor], one: MinimalPairs
) -> Callable[[Place, Tensor], Tensor]:
    """Return what is to be put at a place, given what is computed there, both [N, H, Q, K].

    codes  those of the N instances, the N sources, the N other instances, ...
    """
    n = len(one)
    if patch.what == "instance" or patch.of_source:
        rows = slice(2 * n, 3 * n) if patch.what == "instance" else slice(n, 2 * n)
        return lambda place, live: codes[place][rows]
    if patch.what == "mean":
        count, means = bench.references.count, bench.references.means
        check(bool((count[one.slot, one.source_label] > 0).all()), f"none of {bench.n_reference} "
              f"training instances has {patch.target}; expected a constituent that is trained on",
              ProbeError)
        return lambda place, live: means[place][one.slot, one.source_label]
    numbers = torch.tensor(patch.numbers, device=bench.device)[None, :, None, None]
    if patch.how == "set":
        return lambda place, live: numbers.expand_as(live)
    if patch.how == "add":
        return lambda place, live: live + numbers
    return lambda place, live: live * numbers


__all__ = ["Passes", "passes"]
