"""Fig. 5C: SRAVEN over the number of heads; with one head there is no hypernetwork."""

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
HEADS = "model.n_heads+model.d_head+model.d_head_v="
"""The sum of the head dimensions stays what it is with 16 heads of 4."""
SHOWS = {
    "paper": (Setting("paper", "sraven", (
        KINDS, f"{HEADS}[1,64,64],[2,32,32],[4,16,16],[8,8,8],[16,4,4]")),),
    "small": (Setting("small", "sraven", (KINDS, f"{HEADS}[1,64,64],[4,16,16],[16,4,4]",
                                          "task.n_features=2", "training.steps=750")),),
    "smoke": (Setting("smoke", "sraven", (KINDS, f"{HEADS}[1,8,8],[4,2,2]")),),
}


def measure(work: Work) -> Findings:
    """Return accuracy on `ood` for every number of heads."""
    settings = SHOWS[work.preset]
    found = learning(work, settings)
    ood = scores(work, settings, "ood", "accuracy",
                 ["model.n_heads", "model.d_head", "model.d_head_v"])
    one, more = ood[ood["n_heads"] == 1], ood[ood["n_heads"] > 1]
    return Findings(
        summary=sentences(of_kinds(one, "OOD accuracy with one head"),
                          of_kinds(more, "With more heads") if len(more) else "",
                          beside_ceiling(ood)) if len(one) else of_kinds(more, "OOD accuracy"),
        tables={"accuracy": ood},
        figures=curves_of_kinds("fig5c", [Curves(ood, "OOD accuracy", "n_heads")], found.heading),
        evidence=metric_evidence(work, "accuracy", "ood"),
        notes=(*found.notes, "The sum of the head dimensions is the same for every number of "
               "heads."))


REPRODUCTION = Reproduction("OOD accuracy on SRAVEN over the number of heads", SHOWS, measure)
