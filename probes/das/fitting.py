"""h <- h + R R^T (h' - h): an orthonormal basis R that is trained to change what comes out.

Distributed alignment search (Geiger et al., CLeaR 2024). R [d, k] is the Q of the QR decomposition
of a free matrix, so that every step of the optimiser leaves it orthonormal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import ProbeError, check

Loss = Callable[[Tensor, Tensor], Tensor]
"""(basis [d, k], rows int64 [B]) -> what is to be small on these pairs."""
WINDOW = 50
"""Steps whose losses are averaged, to see whether they still fall."""
LEAST_GAIN = 0.01
"""A search ends where a window's mean loss is not below the last one's by this share of it."""


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
