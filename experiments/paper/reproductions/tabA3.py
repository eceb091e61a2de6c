"""Table A3: the hyperparameters of the published models, and ours."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

SHOWS: dict[str, tuple[Setting, ...]] = {"paper": (), "small": (), "smoke": ()}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "The hyperparameters of Table A3 and of ours", SHOWS, measure)
