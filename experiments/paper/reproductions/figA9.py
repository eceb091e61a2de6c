"""Fig. A9: how many SRAVEN tasks and problem instances are there?"""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

SHOWS: dict[str, tuple[Setting, ...]] = {"paper": (), "small": (), "smoke": ()}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "The number of SRAVEN tasks and problem instances", SHOWS, measure)
