"""`latentcode das`: distributed alignment search, for the operation or operands alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from latentcode.cli.options import RunName, Sampling, Seeded, default_is


@dataclass(frozen=True, kw_only=True)
class DAS(Seeded, Sampling):
    """Does a subspace carry the operation alone? (distributed alignment search)

    Example: latentcode das runs/sraven --out results/das --layer 3 --rank 4 16

    Distributed alignment search (Geiger et al. 2024): an orthonormal basis of the response's codes,
    or of its residual stream, is trained so that the coordinates of a source with another operation
    and other operands bring the operation alone, or the operands alone. Answers are counted on
    held-out combinations, beside shuffled targets, the untrained model, a random subspace and the
    whole activation.
    """

    path: tyro.conf.Positional[RunName]
    objective: tuple[Literal["operation", "operands"], ...] = ("operation",)
    """What is to arrive from the source."""
    site: Literal["code", "residual"] = "code"
    """The row of the response's codes, or the residual stream that enters the layer there."""
    layer: Annotated[int | None, default_is("the last")] = None
    """Number of the layer."""
    rank: tuple[int, ...] = (4,)
    """Dimensions of the subspace."""
    n: int = 600
    """Number of pairs to score; only those that the model answers are counted."""
    n_train: int = 2_048
    """Number of pairs to train on."""
    steps: int = 300
    """Steps of a search, at most."""

    def run(self) -> None:
        from latentcode.probes.das import DASResult, das

        self.save_result(DASResult, "searches", lambda progress: das(
            self.path, self.objective, site=self.site, layer=self.layer, rank=self.rank,
            split=self.split, n_train=self.n_train, n=self.n, steps=self.steps, seed=self.seed,
            device=self.device, progress=progress))
