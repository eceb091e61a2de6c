"""Fig. 2C: R² on held-out functions, over the examples in context and the held-out share."""

from __future__ import annotations

from latentcode.experiments.evidence.claim import Setting
from latentcode.experiments.paper.measuring.drawing import Curves, curves_of_kinds
from latentcode.experiments.paper.measuring.scores import learning, scores
from latentcode.experiments.paper.measuring.words import of_kinds
from latentcode.experiments.paper.reproduction import (
    Findings,
    Reproduction,
    Work,
    metric_evidence,
)

KINDS = "kind=softmax,linear,hyla"
AXES = ("task.n_examples", "task.ood_fraction")
SHOWS = {
    "paper": (Setting("paper", "logic", (KINDS, "task.n_examples=16,32,64,96",
                                         "task.ood_fraction=0.3,0.5,0.7")),),
    "small": (Setting("small", "logic", (KINDS, "task.n_examples=16,32",
                                         "task.ood_fraction=0.3,0.7", "training.steps=1000")),),
    "smoke": (Setting("smoke", "logic", (KINDS, "task.n_examples=6,8")),),
}


def measure(work: Work) -> Findings:
    """Return R² on `ood` at the last update, for every kind, sequence and held-out share."""
    settings = SHOWS[work.preset]
    found, ood = learning(work, settings), scores(work, settings, "ood", "r2", AXES)
    return Findings(
        summary=of_kinds(ood, "R² on held-out functions"),
        tables={"r2": ood},
        figures=curves_of_kinds("fig2c", [Curves(ood, "R² on held-out functions", "n_examples",
                                                 "ood_fraction")], found.heading),
        evidence=metric_evidence(work, "r2", "ood"),
        notes=found.notes)


REPRODUCTION = Reproduction(
    "R² on held-out functions, over the examples in context and the held-out share",
    SHOWS, measure)
