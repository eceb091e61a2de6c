"""Fig. A1: an attention layer as a hypernetwork, drawn from a trained model."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

KINDS = "kind=softmax,linear,hyla"
SHOWS = {
    "paper": (Setting("paper", "logic", (KINDS,)),),
    "small": (Setting("paper", "logic", (KINDS,)),),
    "smoke": (Setting("smoke", "logic", (KINDS,)),),
}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "An attention layer as a hypernetwork, drawn from a trained model", SHOWS, measure)
