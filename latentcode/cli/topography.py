"""`latentcode topography`: representational similarity analysis of codes and tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from latentcode.cli.options import OfRuns, Sampling, Verb, default_is


@dataclass(frozen=True, kw_only=True)
class Topography(OfRuns, Sampling):
    """Do similar tasks have similar codes? (representational similarity analysis)

    Example: latentcode topography runs/hyla-* --out results/topography

    Representational similarity analysis (RSA): Spearman's correlation of distances of codes with
    those of tasks. Instances come from each run's own split. With four runs or more, the
    correlation is also compared with how well the runs do on held-out combinations.
    """

    labels: Annotated[tuple[str, ...], default_is("rule or terms, and combination")] = ()
    """Labels that tell tasks apart."""

    def verb(self) -> Verb:
        from latentcode.probes.topography import TopographyResult, topography

        return topography, TopographyResult
