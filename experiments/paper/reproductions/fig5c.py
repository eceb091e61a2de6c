"""Fig. 5C: SRAVEN over the number of heads; with one head there is no hypernetwork."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

KINDS = "kind=softmax,linear,hyla"
HEADS = "model.n_heads+model.d_head+model.d_head_v="
"""The sum of the head dimensions stays what it is with 16 heads of 4."""
SHOWS = {
    "paper": (Setting("paper", "sraven", (
        KINDS, f"{HEADS}[1,64,64],[2,32,32],[4,16,16],[8,8,8],[16,4,4]")),),
    "small": (Setting("small", "sraven", (KINDS, f"{HEADS}[1,64,64],[4,16,16],[16,4,4]",
                                          "task.n_features=2", "training.steps=1500")),),
    "smoke": (Setting("smoke", "sraven", (KINDS, f"{HEADS}[1,8,8],[4,2,2]")),),
}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "OOD accuracy on SRAVEN over the number of heads", SHOWS, measure)
