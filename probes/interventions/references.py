"""What patches are made of: means over training instances, and erasers of labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.models.patched.sites import Edit, Place, capture
from latentcode.progress import Progress
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

ERASABLE: tuple[str, ...] = ("pair", "pairs", "row")
"""Scopes in which labels can be erased; others have too many positions, each with its eraser."""


@dataclass(frozen=True)
class References:
    """What was measured on training instances.

    means    place -> [slot, constituent, ...], the mean activation of instances with that
             constituent in that slot; zero where there is none
    groups   place -> [slot, constituent, ...], the mean of as many instances drawn at random
    overall  place -> the mean activation of all instances
    count    float [slot, constituent], of how many instances
    erasers  (scope, shuffled) -> place -> `Erasers`
    """

    means: Mapping[Place, Tensor]
    groups: Mapping[Place, Tensor]
    overall: Mapping[Place, Tensor]
    count: Tensor
    erasers: Mapping[tuple[str, bool], Mapping[Place, Erasers]]


@dataclass(frozen=True)
class Erasers:
    """x -> x - P (x - mean): LEACE (Belrose et al. 2023) of codes x at each position of a scope.

    matrices  float [slot, label, position, H, H], the projections P
    means     float [slot, position, H]
    """

    matrices: Tensor
    means: Tensor

    def edit(self, scope: Tensor, slot: Tensor, label: Tensor) -> Edit:
        """Return what erases label [B] from the codes of a scope [B, Q, K] of slots [B]."""
        projections, centres = self.matrices[slot, label], self.means[slot]

        def erase(code: Tensor) -> Tensor:
            last = code.movedim(1, -1).clone()  # [B, Q, K, H]
            x = last[scope].view(len(code), -1, code.shape[1]).to(projections.dtype)
            removed = (projections @ (x - centres)[..., None])[..., 0]
            last[scope] = (x - removed).flatten(0, 1).to(code.dtype)
            return last.movedim(-1, 1)

        return erase


def measure(
    model: Any,
    task: Counterfactuals,
    places: Collection[Place],
    *,
    erase: Collection[tuple[str, bool]] = (),
    split: str = "train",
    n: int = 4_096,
    seed: int = 0,
    batch_size: int = 256,
    progress: Progress | None = None,
) -> References:
    """Return means over n instances of a split, and erasers fitted on them.

    erase  (scope, shuffled) of the erasers that are wanted; shuffled ones are fitted to the labels
           of other instances

    The instances are others than those that `intervene_model` writes to, of the same split too;
    of restricted pairs any that the task draws (`Counterfactuals.unrestricted`).
    """
    device = next(model.parameters()).device
    generator = make_generator(seed, f"interventions reference {split}", device)
    shuffling = make_generator(seed, f"interventions groups {split}", device)
    task = task.unrestricted
    totals: dict[Place, Tensor] = {}
    shuffled: dict[Place, Tensor] = {}
    sums: dict[Place, Tensor] = {}
    count = torch.zeros((), device=device)
    codes: dict[tuple[str, Place], list[Tensor]] = {}
    slots, labels = [], []
    n_drawn = 0
    for pairs in task.batches(split, n, batch_size, generator):
        n_drawn += len(pairs)
        member = task.membership(pairs.bases).float()
        _, activations = capture(model, pairs.bases.inputs, places)
        count = count + member.sum(0)
        others = member[torch.randperm(len(member), generator=shuffling, device=device)]
        for place, x in activations.items():
            wide = torch.promote_types(x.dtype, torch.float32)
            for kept, who in ((totals, member), (shuffled, others)):
                total = torch.einsum("bsc,b...->sc...", who.to(wide), x.to(wide))
                kept[place] = kept.get(place, 0.0) + total
            sums[place] = sums.get(place, 0.0) + x.to(wide).sum(0)
        for scope in {scope for scope, _ in erase}:
            where = task.scope(scope, pairs)
            for place, x in activations.items():
                if place[0] == "code":
                    gathered = x.movedim(1, -1)[where].view(len(x), -1, x.shape[1])
                    codes.setdefault((scope, place), []).append(gathered)
        slots.append(pairs.slot)
        labels.append(member[torch.arange(len(pairs), device=device), pairs.slot])
        if progress is not None:
            progress(n_drawn, n)
    means, groups = (
        {place: total / count.clamp_min(1.0).view(*count.shape, *[1] * (total.ndim - 2))
         for place, total in kept.items()} for kept in (totals, shuffled))
    slot, label = torch.cat(slots), torch.cat(labels)
    order = torch.randperm(n, generator=generator, device=device)
    erasers = {
        (scope, shuffled): {
            place: _fit(torch.cat(parts), slot, label[order] if shuffled else label, task)
            for (of, place), parts in codes.items() if of == scope}
        for scope, shuffled in erase}
    overall = {place: x / n_drawn for place, x in sums.items()}
    return References(means, groups, overall, count, erasers)


def _fit(codes: Tensor, slot: Tensor, label: Tensor, task: Counterfactuals) -> Erasers:
    """Fit an eraser per slot, label and position to codes [N, P, H] with labels [N, C]."""
    from concept_erasure import LeaceFitter

    n_positions, n_heads = codes.shape[1:]
    labels = ([label] if task.exclusive else list(label[..., None].unbind(1)))  # each [N, classes]
    matrices = codes.new_zeros(task.n_slots, len(labels), n_positions, n_heads, n_heads,
                               dtype=torch.float64)
    means = codes.new_zeros(task.n_slots, n_positions, n_heads, dtype=torch.float64)
    for s in range(task.n_slots):
        x = codes[slot == s].double()
        means[s] = x.mean(0)
        for i, z in enumerate(labels):
            mine = z[slot == s].double()
            if bool((mine == mine[:1]).all()):
                continue  # the label does not occur: there is nothing to erase
            for p in range(n_positions):
                fitter = LeaceFitter(n_heads, mine.shape[1], device=x.device, dtype=torch.float64)
                eraser = fitter.update(x[:, p], mine).eraser
                matrices[s, i, p] = eraser.proj_left @ eraser.proj_right
    return Erasers(matrices, means)


def label_to_erase(task: Counterfactuals, pairs: MinimalPairs) -> Tensor:
    """Return which label of its slot is erased from each instance: int64 [B]."""
    return torch.zeros_like(pairs.base_label) if task.exclusive else pairs.base_label
