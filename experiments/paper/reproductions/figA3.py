"""Fig. A3: fuzzy logic on held-out, training and unknown terms, and the training loss."""

from __future__ import annotations

from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work
from latentcode.experiments.paper.reproductions.fig2c import SHOWS


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "Fuzzy logic on held-out functions, on those of training and on unknown terms; training loss", SHOWS, measure)
