"""`latentcode separation`: what do codes separate?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from latentcode.cli.options import OfRun, Sampling, Verb, default_is


@dataclass(frozen=True, kw_only=True)
class Separation(OfRun, Sampling):
    """What do codes separate?

    Example: latentcode separation runs/hyla --out results/separation

    For every label the share of a code's 10 nearest neighbours that have its value, and the same
    among the neighbours of other combinations, for the codes, the residual stream, an untrained
    model and shuffled labels. Measurements are cut at their median.
    """

    labels: Annotated[tuple[str, ...], default_is("all")] = ()
    """Labels that neighbours may share."""

    def verb(self) -> Verb:
        from latentcode.probes.separation import SeparationResult, separation

        return separation, SeparationResult
