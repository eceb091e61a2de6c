"""Table A2: how many SRAVEN instances are ambiguous, and what can a perfect solver reach?"""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

SHOWS: dict[str, tuple[Setting, ...]] = {"paper": (), "small": (), "smoke": ()}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "Ambiguous instances of SRAVEN and the Bayes-optimal solver", SHOWS, measure)
