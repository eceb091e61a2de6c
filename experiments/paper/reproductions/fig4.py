"""Fig. 4: SRAVEN over training instances, for several widths and depths."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

KINDS = "kind=softmax,linear,hyla"
WIDTHS = "model.n_heads+model.d_model+model.d_mlp="
"""The width factor scales the heads too, as the official code does."""
SHOWS = {
    "paper": (
        Setting("paper", "sraven", (KINDS, f"{WIDTHS}[16,128,256],[32,256,512],[64,512,1024]",
                                    "training.steps=78125,156250,312500")),
        Setting("paper", "sraven", (KINDS, "model.n_layers=4,8,16",
                                    "training.steps=78125,156250,312500")),
    ),
    "small": (
        Setting("small", "sraven", (KINDS, f"{WIDTHS}[16,128,256],[32,256,512]",
                                    "task.n_features=2", "training.steps=750,1500")),
        Setting("small", "sraven", (KINDS, "model.n_layers=4,8", "task.n_features=2",
                                    "training.steps=1500")),
    ),
    "smoke": (
        Setting("smoke", "sraven", (KINDS, f"{WIDTHS}[4,16,32]", "training.steps=15,30")),
        Setting("smoke", "sraven", (KINDS, "model.n_layers=1,2", "training.steps=30")),
    ),
}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "OOD accuracy on SRAVEN over training instances, for several widths and depths", SHOWS, measure)
