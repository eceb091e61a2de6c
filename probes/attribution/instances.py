"""Instances and sources that a model answers rightly, each with its attribution and its patches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.models.patched.passes import CleanPass, clean_pass
from latentcode.models.patched.sites import InScope, Place, Put, capture, gradients
from latentcode.probes.attribution.steps import (
    SOURCES,
    by_cell,
    cells,
    known_answers,
    masks,
    n_cells,
    rate_of,
    step,
)
from latentcode.probes.interventions.intervention import CORE
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs


@dataclass(frozen=True)
class Known:
    """B bases that the model answers rightly, and their sources likewise.

    pairs      the bases; `sources` are those that are written from
    own, theirs  float64 [B], the two answers
    role       int64 [B, T], of the tokens
    unpatched  the pass of the bases, which patched ones share
    answered   the logits of the sources
    activations  place -> what the model computes for the sources [B, ...]
    parts      (method, place) -> each head's part of the estimate, [B, H, cell]
    """

    pairs: MinimalPairs
    own: Tensor
    theirs: Tensor
    role: Tensor
    unpatched: CleanPass
    answered: Tensor
    activations: Mapping[Place, Tensor]
    parts: Mapping[tuple[str, Place], Tensor]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: slice) -> Known:
        return Known(
            self.pairs[index], self.own[index], self.theirs[index], self.role[index],
            self.unpatched[index], self.answered[index],
            {place: x[index] for place, x in self.activations.items()},
            {key: x[index] for key, x in self.parts.items()})

    def estimates(self, method: str, site: str) -> Tensor:
        """Return the estimates of a site, [B, layer, head, cell]."""
        layers = sorted(place for used, place in self.parts if (used, place[0]) == (method, site))
        return torch.stack([self.parts[method, place] for place in layers], 1)


@dataclass(frozen=True)
class Setting:
    """A model, what it is asked, whose activations are written, where, and points on the path.

    shared  whether passes share the layers below what is written
    """

    model: Any
    task: Counterfactuals
    source: str
    places: Collection[Place]
    n_points: int
    shared: bool = True

    def known(self, pairs: MinimalPairs) -> Known | None:
        """Return those of the pairs that count, with their attribution; None where there are none.
        """
        task, name = self.task, SOURCES[self.source][0]
        activations: Mapping[Place, Tensor] = {}
        clean, _ = capture(self.model, pairs.bases.inputs, ())
        kept, answered = pairs.counts & task.right(pairs, clean, "bases"), clean
        for batch in dict.fromkeys(("sources", *(CORE if task.factorial else ()), name)):
            logits, found = capture(self.model, pairs.batch(batch).inputs,
                                    self.places if batch == name else ())
            kept = kept & task.right(pairs, logits, batch)
            if batch == name:
                answered, activations = logits, found
        rows = kept.nonzero()[:, 0]
        if not len(rows):
            return None
        pairs = pairs[rows].with_sources(name)
        sources = {place: x[rows] for place, x in activations.items()}
        own, theirs = known_answers(task, pairs, self.source, clean[rows])
        names, role = task.roles(pairs)
        parts = self.estimates(pairs, own, theirs, sources)
        # Once more, because the last digits depend on which instances are computed together.
        unpatched = clean_pass(self.model, pairs.bases.inputs, self.places,
                               shared=self.shared)
        return Known(pairs, own, theirs, role, unpatched, answered[rows], sources, {
            (method, (site, layer)): by_cell(site, part, cells(site, role, len(names)),
                                             n_cells(site, len(names)))
            for (method, (site, layer)), part in parts.items()})

    def estimates(
        self, pairs: MinimalPairs, own: Tensor, theirs: Tensor, sources: Mapping[Place, Tensor]
    ) -> dict[tuple[str, Place], Tensor]:
        """Return (method, place) -> slope times (source's - own), of the activation's shape.

        sources  place -> what the model computes for the sources
        """
        inputs = pairs.bases.inputs

        def measure(logits: Tensor) -> Tensor:
            return step(self.task, pairs, own, theirs, logits)

        live, slopes = gradients(self.model, inputs, self.places, measure)
        difference = {place: sources[place] - live[place] for place in live}
        found = {("gradient", place): slopes[place] * difference[place] for place in live}
        for site in {site for site, _ in self.places}:
            of_site = [place for place in live if place[0] == site]
            for point in range(self.n_points):
                share = (point + 0.5) / self.n_points
                _, slopes = gradients(self.model, inputs, of_site, measure, {
                    place: live[place] + share * difference[place] for place in of_site})
                for place, slope in slopes.items():
                    part = slope * difference[place] / self.n_points
                    found["path", place] = found.get(("path", place), 0.0) + part
        return found

    def written(self, known: Known, site: str, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return how far answers go, and whether they become the source's: float64 [B] each.

        chosen  bool [layer, cell], the places where the source's activations are written
        """
        names, _ = self.task.roles(known.pairs)
        clean = known.unpatched.logits
        layers = sorted({layer for name, layer in self.places if name == site})
        logits = known.unpatched.patched({
            place: InScope(Put(known.activations[place]), mask,
                            mask[:, 0] if site == "code" else mask[..., 0])
            for place, mask in masks(site, layers, chosen, known.role, len(names)).items()})
        moved = (step(self.task, known.pairs, known.own, known.theirs, logits)
                 - step(self.task, known.pairs, known.own, known.theirs, clean))
        outcome = self.task.outcomes(known.pairs, clean, known.answered, logits)
        return moved, outcome[rate_of(self.task, self.source)].double()


@dataclass(frozen=True)
class Patched:
    """Instances in batches, into which the sources' activations are written at chosen places."""

    setting: Setting
    batches: Sequence[Known]

    def __len__(self) -> int:
        return sum(map(len, self.batches))

    def every_second(self, first: int) -> Patched:
        """Return the instances number first, first + 2, ... of every batch."""
        halves = [batch[first::2] for batch in self.batches]
        return Patched(self.setting, [half for half in halves if len(half)])

    def combinations(self) -> np.ndarray:
        """Return the combination of each instance, int64 [N]."""
        return np.concatenate([b.pairs.bases.combination.cpu().numpy() for b in self.batches])

    def estimates(self, method: str, site: str) -> np.ndarray:
        """Return the attribution to each place, its heads summed, float64 [N, place]."""
        return np.concatenate([b.estimates(method, site).sum(2).flatten(1).double().cpu().numpy()
                               for b in self.batches])

    def written(self, site: str, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write places (numbers); return how far answers go and which become the source's, [N]."""
        measured = [self.setting.written(batch, site, self._chosen(batch, site, places))
                    for batch in self.batches]
        moved, flipped = (torch.cat(parts).cpu().numpy() for parts in zip(*measured, strict=True))
        return moved, flipped

    @staticmethod
    def _chosen(batch: Known, site: str, places: np.ndarray) -> Tensor:
        n_layers, n = batch.estimates("path", site).shape[1::2]
        chosen = torch.zeros(n_layers * n, dtype=torch.bool, device=batch.role.device)
        chosen[torch.from_numpy(places).to(chosen.device)] = True
        return chosen.view(n_layers, n)

