"""`latentcode align`: do different runs have the same codes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from latentcode.cli.options import OfRuns, Verb, default_is


@dataclass(frozen=True, kw_only=True)
class Align(OfRuns):
    """Do different runs have the same codes?

    Example: latentcode align runs/hyla-0 runs/hyla-1 --out results/alignment

    Compares the codes of several runs of one task: CKA, Procrustes distances, matched heads and
    transferred probes. All runs see the same instances, drawn from the first run's split; their own
    splits may differ.
    """

    LEAST: ClassVar[int] = 2
    labels: Annotated[tuple[str, ...], default_is("every constituent")] = ()
    """What the transferred probes decode."""
    n_train: int = 2_048
    """Number of instances of training combinations to fit probes and matchings on."""
    n_heldout: int = 2_048
    """Number of instances of held-out combinations to score them on."""

    def verb(self) -> Verb:
        from latentcode.probes.alignment import AlignmentResult, align

        return align, AlignmentResult
