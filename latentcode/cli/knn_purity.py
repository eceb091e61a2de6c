"""`latentcode knn-purity`: what do codes separate? The purity of k nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from latentcode.cli.options import OfRun, Sampling, Verb, default_is


@dataclass(frozen=True, kw_only=True)
class KNNPurity(OfRun, Sampling):
    """What do codes separate? (purity of k nearest neighbours)

    Example: latentcode knn-purity runs/hyla --out results/knn_purity

    For every label the share of a code's 10 nearest neighbours that have its value, and the same
    among the neighbours of other combinations, for the codes, the residual stream, an untrained
    model and shuffled labels. Measurements are cut at their median.
    """

    labels: Annotated[tuple[str, ...], default_is("all")] = ()
    """Labels that neighbours may share."""

    def verb(self) -> Verb:
        from latentcode.probes.knn_purity import KNNPurityResult, knn_purity

        return knn_purity, KNNPurityResult
