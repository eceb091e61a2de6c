"""Table A1: the 14 ablations, on fuzzy logic and SRAVEN."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work
from latentcode.models.config import TABLE_A1

KINDS = f"kind={','.join(TABLE_A1)}"
SHOWS = {
    "paper": (Setting("paper", "logic", (KINDS,)), Setting("paper", "sraven", (KINDS,))),
    "small": (Setting("small", "logic", (KINDS, "training.steps=500")),
              Setting("small", "sraven", (KINDS, "task.n_features=2", "training.steps=750"))),
    "smoke": (Setting("smoke", "logic", ("kind=softmax,linear,hyla,hyla_deep",)),
              Setting("smoke", "sraven", ("kind=softmax,linear,hyla",))),
}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "The ablations of Table A1 on held-out functions and rule combinations", SHOWS, measure)
