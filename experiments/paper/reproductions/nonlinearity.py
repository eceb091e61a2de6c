"""The reviews' table: nonlinearities in HYLA's value network, on SRAVEN."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

NONLINEARITIES = "model.nonlinearity=gelu,relu,sigmoid,silu,tanh"
SHOWS = {
    "paper": (Setting("paper", "sraven", ("kind=hyla", NONLINEARITIES)),
              Setting("paper", "sraven", ("kind=softmax",))),
    "small": (Setting("small", "sraven", ("kind=hyla", NONLINEARITIES, "task.n_features=2",
                                          "training.steps=750")),
              Setting("small", "sraven", ("kind=softmax", "task.n_features=2",
                                          "training.steps=750"))),
    "smoke": (Setting("smoke", "sraven", ("kind=hyla", "model.nonlinearity=relu,silu")),
              Setting("smoke", "sraven", ("kind=softmax",))),
}


def measure(work: Work) -> Findings:
    """Return nothing yet."""
    return Findings("", {})


REPRODUCTION = Reproduction(
    "Nonlinearities in the value network of HYLA, on SRAVEN", SHOWS, measure)
