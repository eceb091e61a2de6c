"""Fig. A5: SRAVEN over the share of rule combinations that is held out."""

from __future__ import annotations

import pandas as pd

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
    "paper": (Setting("paper", "sraven", (KINDS, "task.ood_fraction=0.0,0.25,0.5,0.75")),),
    "small": (Setting("small", "sraven", (KINDS, "task.ood_fraction=0.0,0.25,0.5,0.75",
                                          "task.n_features=2", "training.steps=750")),),
    "smoke": (Setting("smoke", "sraven", (KINDS, "task.ood_fraction=0.0,0.25")),),
}


def measure(work: Work) -> Findings:
    """Return accuracy on `ood` for every share; where nothing is held out, on `test`."""
    settings = SHOWS[work.preset]
    found = learning(work, settings)
    ood, test = (scores(work, settings, split, "accuracy", ["task.ood_fraction"])
                 for split in ("ood", "test"))
    shown = pd.concat([test[test["ood_fraction"] == 0.0], ood], ignore_index=True)
    return Findings(
        summary=sentences(of_kinds(ood, "OOD accuracy over held-out shares"), beside_ceiling(ood)),
        tables={"accuracy": shown, "training": test},
        figures=curves_of_kinds(
            "figA5", [Curves(shown, "OOD accuracy", "ood_fraction")], found.heading),
        evidence=metric_evidence(work, "accuracy", "ood"),
        notes=(*found.notes, "At a share of 0 no combination is held out: the accuracy there is "
               "on fresh instances of all combinations."))


REPRODUCTION = Reproduction(
    "OOD accuracy on SRAVEN over the held-out share of rule combinations",
    SHOWS, measure)
