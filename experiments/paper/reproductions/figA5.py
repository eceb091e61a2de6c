"""Fig. A5: SRAVEN over the share of rule combinations that is held out."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

KINDS = "kind=softmax,linear,hyla"
SHOWS = {
    "paper": (Setting("paper", "sraven", (KINDS, "task.ood_fraction=0.0,0.25,0.5,0.75")),),
    "small": (Setting("small", "sraven", (KINDS, "task.ood_fraction=0.0,0.25,0.5,0.75",
                                          "task.n_features=2", "training.steps=1500")),),
    "smoke": (Setting("smoke", "sraven", (KINDS, "task.ood_fraction=0.0,0.25")),),
}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "OOD accuracy on SRAVEN over the held-out share of rule combinations", SHOWS, measure)
