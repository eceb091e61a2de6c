"""Fig. 4: SRAVEN over training instances, for several widths and depths."""

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
WIDTHS = "model.n_heads+model.d_model+model.d_mlp="
"""The width factor scales the heads too, as the official code does."""
AXES = ("model.n_heads", "model.d_model", "model.n_layers", "training.steps")
SHOWS = {
    "paper": (
        Setting("paper", "sraven", (KINDS, f"{WIDTHS}[16,128,256],[32,256,512],[64,512,1024]",
                                    "training.steps=78125,156250,312500")),
        Setting("paper", "sraven", (KINDS, "model.n_layers=4,8,16",
                                    "training.steps=78125,156250,312500")),
    ),
    "small": (
        Setting("small", "sraven", (KINDS, f"{WIDTHS}[8,64,128],[16,128,256]",
                                    "task.n_features=2", "training.steps=750,1500")),
        Setting("small", "sraven", (KINDS, "model.n_layers=4,8", "task.n_features=2",
                                    "training.steps=750")),
    ),
    "smoke": (
        Setting("smoke", "sraven", (KINDS, f"{WIDTHS}[4,16,32]", "training.steps=15,30")),
        Setting("smoke", "sraven", (KINDS, "model.n_layers=1,2", "training.steps=30")),
    ),
}


def measure(work: Work) -> Findings:
    """Return accuracy on `ood` over instances, A for several widths and B for several depths."""
    widths, depths = SHOWS[work.preset]
    found = learning(work, (widths, depths))
    tables = {"widths": scores(work, [widths], "ood", "accuracy", AXES),
              "depths": scores(work, [depths], "ood", "accuracy", AXES)}
    return Findings(
        summary=sentences(of_kinds(tables["widths"], "OOD accuracy over widths and instances"),
                          of_kinds(tables["depths"], "Over depths and instances"),
                          beside_ceiling(tables["widths"])),
        tables=tables,
        figures=curves_of_kinds("fig4", [
            Curves(tables["widths"], "A width, OOD accuracy", "instances", "d_model"),
            Curves(tables["depths"], "B depth, OOD accuracy", "instances", "n_layers"),
        ], found.heading),
        evidence=metric_evidence(work, "accuracy", "ood"),
        notes=(*found.notes, "The width factor scales the number of heads too, as the official "
               "code does."))


REPRODUCTION = Reproduction(
    "OOD accuracy on SRAVEN over training instances, for several widths and depths",
    SHOWS, measure)
