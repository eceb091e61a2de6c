"""Searches in one model at one place: what the loss asks for, and how a subspace is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from latentcode.answers import CLASSES
from latentcode.errors import check
from latentcode.models.modes import evaluating
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.common.contrasts import paired_rates
from latentcode.probes.das.fitting import Fit, fit_subspace, interchange
from latentcode.probes.das.places import BATCH, Held, first_computed, hold, logits_from
from latentcode.probes.das.result import SOURCE
from latentcode.probes.interventions.patches import PATCHES, lacked
from latentcode.probes.interventions.sites import Place
from latentcode.seeds import make_generator
from latentcode.tasks.counterfactuals import Counterfactuals

SCORED = (SOURCE, "interchange", "operands", "control", "unrelated")
"""Patches whose sources' coordinates are put into each subspace that was found, but those that the
task lacks."""


@dataclass(frozen=True)
class Scored:
    """What came of a subspace.

    rows      of the table, one per source and class of answers
    outcomes  source -> a row per instance that counts: its `number`, `combination` and `CLASSES`
    """

    rows: list[dict[str, Any]]
    outcomes: Mapping[str, pd.DataFrame]

    def less(self, other: Scored, n_bootstrap: int, seed: int) -> Iterator[dict[str, Any]]:
        """Yield, for each source and class, the rate less that of another subspace, over the
        instances that both count."""
        for source, ours in self.outcomes.items():
            rows = paired_rates(ours, other.outcomes[source], list(CLASSES), n_bootstrap, seed)
            yield from ({"source": source, "class": name, "quantity": "rate", **row}
                        for name, row in zip(CLASSES, rows, strict=True))


@dataclass(frozen=True)
class Search:
    """Pairs to train a subspace on, and others to score it on.

    train, heldout  what `model` computes of them below `place`
    """

    model: Any
    task: Counterfactuals
    place: Place
    train: Held
    heldout: Held

    @classmethod
    def prepared(
        cls, model: Any, task: Counterfactuals, place: Place, *, n_train: int, n: int, split: str,
        known: bool, seed: int,
    ) -> Search:
        """Draw the pairs and pass them through the model; arguments as in `das_model`."""
        device = next(model.parameters()).device
        scored = tuple(name for name in SCORED if not lacked(PATCHES[name], task.lacking))
        train, heldout = (
            hold(model, task, place, sources, split=of, n=size, known=known,
                 generator=make_generator(seed, f"subspaces {use} {of}", device))
            for use, of, size, sources in (("train", "train", n_train, (SOURCE,)),
                                          ("score", split, n, scored)))
        return cls(model, task, place, train, heldout)

    @property
    def d(self) -> int:
        """The number of dimensions of the place."""
        return self.train.own.shape[1]

    def fit(
        self, objective: str, rank: int, *, shuffled: bool, generator: torch.Generator, steps: int,
        batch_size: int, learning_rate: float, progress: Callable[[], None] | None = None,
    ) -> Fit:
        """Return the subspace that brings the objective's answer from the source (`SOURCE`).

        shuffled  ask for the answers of other training pairs
        """
        train = self.train
        assert train.pairs.candidates is not None
        targets = train.pairs.candidates[:, list(CLASSES).index(objective)]
        check(bool(targets.isfinite().all()), f"objective is {objective!r}, whose answer "
              f"{CLASSES[objective].partition(',')[0]} is the model's own affair in these pairs; "
              "expected one that is known")
        if shuffled:
            targets = targets[torch.randperm(len(train), generator=generator,
                                             device=generator.device)]

        def loss(basis: Tensor, rows: Tensor) -> Tensor:
            written = interchange(train.own[rows], train.sources[SOURCE][rows], basis)
            logits = logits_from(self.model, self.place, train, rows, written)
            answer = logits[torch.arange(len(rows), device=rows.device), train.token[rows]]
            if self.task.symbolic:
                return F.cross_entropy(answer, targets[rows].long())
            return F.mse_loss(answer[:, 0], targets[rows].to(answer.dtype))

        with evaluating(self.model), torch.enable_grad():
            return fit_subspace(loss, self.d, rank, len(train), steps=steps, batch_size=batch_size,
                                learning_rate=learning_rate, generator=generator,
                                progress=progress)

    def scored(self, basis: Float[Tensor, "d k"], n_bootstrap: int, seed: int) -> Scored:
        """Return the rate of each class of answers, for each source of `SCORED` that there is."""
        held, rows, frames = self.heldout, [], {}
        first = first_computed(self.model, held)
        for name in held.sources:
            count = held.right[name].nonzero()[:, 0]
            patched = held.clean.clone()
            with evaluating(self.model):
                for part in count.split(BATCH):
                    written = interchange(held.own[part], held.sources[name][part], basis)
                    logits = logits_from(self.model, self.place, held, part, written)
                    patched[part, first:] = logits[:, first:]
            outcomes = self.task.outcomes(held.pairs.with_sources(PATCHES[name].source), held.clean,
                                          held.clean, patched)
            frame = pd.DataFrame({
                "number": held.number.cpu().numpy(),
                "combination": held.pairs.bases.combination.cpu().numpy(),
                **{of: outcomes[of].double().cpu().numpy() for of in CLASSES}})
            frame = frames[name] = frame.iloc[count.cpu().numpy()]
            means, low, high, n_clusters = mean_and_interval(
                frame[list(CLASSES)].to_numpy(), frame["combination"].to_numpy(), n_bootstrap, seed)
            rows += [{"rank": basis.shape[1], "source": name, "class": of, "value": means[i],
                      "low": low[i], "high": high[i], "n": len(frame),
                      "n_combinations": n_clusters} for i, of in enumerate(CLASSES)]
        return Scored(rows, frames)
