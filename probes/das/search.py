"""Searches of subspaces: how one is trained, what the loss asks for, and how it is scored.

h <- h + R R^T (h' - h): an orthonormal basis R that is trained to change what comes out.

Distributed alignment search (Geiger et al., CLeaR 2024). R [d, k] is the Q of the QR decomposition
of a free matrix, so that every step of the optimiser leaves it orthonormal.
"""

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
from latentcode.errors import ProbeError, check
from latentcode.models.modes import evaluating
from latentcode.models.patched.sites import Place
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.common.contrasts import paired_rates
from latentcode.probes.das.places import BATCH, Held, first_computed, hold, logits_from
from latentcode.probes.das.result import SOURCE
from latentcode.probes.interventions.patches import PATCHES, lacked
from latentcode.seeds import make_generator
from latentcode.tasks.counterfactuals import Counterfactuals

Loss = Callable[[Tensor, Tensor], Tensor]
"""(basis [d, k], rows int64 [B]) -> what is to be small on these pairs."""
WINDOW = 50
"""Steps whose losses are averaged, to see whether they still fall."""
LEAST_GAIN = 0.01
"""A search ends where a window's mean loss is not below the last one's by this share of it."""
SCORED = (SOURCE, "interchange", "operands", "control", "unrelated")
"""Patches whose sources' coordinates are put into each subspace that was found, but those that the
task lacks."""


@dataclass(frozen=True)
class Fit:
    """A trained subspace.

    basis   [d, k], orthonormal
    losses  the loss of every step
    """

    basis: Tensor
    losses: tuple[float, ...]


def interchange(
    own: Float[Tensor, "B d"], source: Float[Tensor, "B d"], basis: Float[Tensor, "d k"]
) -> Float[Tensor, "B d"]:
    """h + R R^T (h' - h): the source's coordinates within a subspace, one's own outside of it."""
    return own + (source - own) @ basis @ basis.T


def random_basis(d: int, rank: int, generator: torch.Generator) -> Float[Tensor, "d k"]:
    """Return an orthonormal basis of a random subspace, of the generator's device."""
    return _orthonormal(torch.randn(d, rank, generator=generator, device=generator.device))


def fit_subspace(
    loss: Loss,
    d: int,
    rank: int,
    n: int,
    *,
    steps: int = 300,
    batch_size: int = 64,
    learning_rate: float = 0.01,
    generator: torch.Generator,
    progress: Callable[[], None] | None = None,
) -> Fit:
    """min over R of the mean loss: the subspace of d dimensions that does what the loss asks.

    loss   given the basis and the numbers of some of n pairs
    steps  at most; the search ends where the loss no longer falls
    progress  called after every step

    `ProbeError` where the rank is not from 1 to d, or a loss is not finite.
    """
    check(1 <= rank <= d, f"rank is {rank!r}; expected 1 to {d}, the dimensions of the place",
          ProbeError)
    free = random_basis(d, rank, generator).requires_grad_()
    optimizer = torch.optim.Adam([free], lr=learning_rate)
    losses: list[float] = []
    for step in range(steps):
        rows = torch.randint(n, (batch_size,), generator=generator, device=generator.device)
        found = loss(_orthonormal(free), rows)
        (gradient,) = torch.autograd.grad(found, free)
        free.grad = gradient
        optimizer.step()
        losses.append(float(found.detach()))
        check(losses[-1] == losses[-1], f"the loss of step {step} is {losses[-1]}; expected a "
              "finite one", ProbeError)
        if progress is not None:
            progress()
        if len(losses) % WINDOW == 0 and _flat(losses):
            break
    return Fit(_orthonormal(free.detach()), tuple(losses))


def _orthonormal(matrix: Float[Tensor, "d k"]) -> Float[Tensor, "d k"]:
    q: Tensor = torch.linalg.qr(matrix).Q
    return q


def _flat(losses: list[float]) -> bool:
    before, now = (sum(part) for part in (losses[-2 * WINDOW:-WINDOW], losses[-WINDOW:]))
    return len(losses) >= 2 * WINDOW and now > (1.0 - LEAST_GAIN) * before


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
