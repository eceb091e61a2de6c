"""Fig. 5D: SRAVEN over the number of features M."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

KINDS = "kind=softmax,linear,hyla"
SHOWS = {
    "paper": (Setting("paper", "sraven", (KINDS, "task.n_features=2,3,4")),),
    "small": (Setting("small", "sraven", (KINDS, "task.n_features=2,3",
                                          "training.steps=1500")),),
    "smoke": (Setting("smoke", "sraven", (KINDS, "task.n_features=2,3")),),
}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "OOD accuracy on SRAVEN over the number of features", SHOWS, measure)
