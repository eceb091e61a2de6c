"""`latentcode similarity`: which values of a label have similar codes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from latentcode.cli.options import OfRun, Sampling, Verb, default_is


@dataclass(frozen=True, kw_only=True)
class Similarity(OfRun, Sampling):
    """Which values of a label have similar codes?

    Example: latentcode similarity runs/hyla --label terms --out results/similarity

    Compares mean codes, and counts the heads in use: cosines between the mean codes of a label's
    values (Fig. 5E, A8C), mean and sampled codes (Fig. A8A, B) and participation ratios, for the
    codes, the residual stream, an untrained model and shuffled labels.
    """

    label: Annotated[str | None, default_is("rule, or terms")] = None
    """Label whose values are compared."""

    def verb(self) -> Verb:
        from latentcode.probes.similarity import SimilarityResult, similarity

        return similarity, SimilarityResult
