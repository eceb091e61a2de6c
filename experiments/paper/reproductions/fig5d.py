"""Fig. 5D: SRAVEN over the number of features M."""

from __future__ import annotations

from latentcode.experiments.evidence.claim import Setting
from latentcode.experiments.paper.measuring.drawing import Curves, curves_of_kinds
from latentcode.experiments.paper.measuring.scores import learning, scores
from latentcode.experiments.paper.measuring.words import beside_ceiling, of_kinds, sentences
from latentcode.experiments.paper.reproduction import (
    Findings,
    Reproduction,
    Work,
    metric_evidence,
)

KINDS = "kind=softmax,linear,hyla"
SHOWS = {
    "paper": (Setting("paper", "sraven", (KINDS, "task.n_features=2,3,4")),),
    "small": (Setting("small", "sraven", (KINDS, "task.n_features=2,3",
                                          "training.steps=750")),),
    "smoke": (Setting("smoke", "sraven", (KINDS, "task.n_features=2,3")),),
}


def measure(work: Work) -> Findings:
    """Return accuracy on `ood` for every number of features; all of an instance must be right."""
    settings = SHOWS[work.preset]
    found = learning(work, settings)
    ood = scores(work, settings, "ood", "accuracy", ["task.n_features"])
    return Findings(
        summary=sentences(*(of_kinds(rows, f"OOD accuracy with {m} features")
                            for m, rows in ood.groupby("n_features")),
                          beside_ceiling(ood)) or of_kinds(ood, "OOD accuracy"),
        tables={"accuracy": ood},
        figures=curves_of_kinds("fig5d", [Curves(ood, "OOD accuracy", "n_features")],
                                found.heading),
        evidence=metric_evidence(work, "accuracy", "ood"),
        notes=(*found.notes, "A single feature is left out: a held-out combination would then be "
               "a rule that training never had."))


REPRODUCTION = Reproduction("OOD accuracy on SRAVEN over the number of features", SHOWS, measure)
