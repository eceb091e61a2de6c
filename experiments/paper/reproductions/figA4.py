"""Fig. A4: the training loss on SRAVEN, for several widths and depths."""

from __future__ import annotations

from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work
from latentcode.experiments.paper.reproductions.fig4 import SHOWS


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "Training loss on SRAVEN over training instances, for several widths and depths", SHOWS, measure)
