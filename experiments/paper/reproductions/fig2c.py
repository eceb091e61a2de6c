"""Fig. 2C: R² on held-out functions, over the examples in context and the held-out share."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

KINDS = "kind=softmax,linear,hyla"
SHOWS = {
    "paper": (Setting("paper", "logic", (KINDS, "task.n_examples=16,32,64,96",
                                         "task.ood_fraction=0.3,0.5,0.7")),),
    "small": (Setting("small", "logic", (KINDS, "task.n_examples=16,32",
                                         "task.ood_fraction=0.3,0.7", "training.steps=1000")),),
    "smoke": (Setting("smoke", "logic", (KINDS, "task.n_examples=6,8")),),
}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "R² on held-out functions, over the examples in context and the held-out share", SHOWS, measure)
