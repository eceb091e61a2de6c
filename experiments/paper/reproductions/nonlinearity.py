"""The reviews' table: nonlinearities in HYLA's value network, on SRAVEN."""

from __future__ import annotations

from latentcode.experiments.evidence.claim import Setting
from latentcode.experiments.paper.measuring.drawing import Numbers, beside_published
from latentcode.experiments.paper.measuring.published import beside, in_points, printed
from latentcode.experiments.paper.measuring.scores import learning, scores
from latentcode.experiments.paper.measuring.words import NOTHING, beside_ceiling, sentences
from latentcode.experiments.paper.reproduction import (
    Findings,
    Reproduction,
    Work,
    metric_evidence,
)

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
    """Return accuracy on `ood` of HYLA with every nonlinearity, and that of softmax attention."""
    settings = SHOWS[work.preset]
    found = learning(work, settings)
    runs = scores(work, settings, "ood", "accuracy", ["model.nonlinearity"])
    hyla = runs[runs["kind"] != "softmax"]
    names = {claim: str(point["model.nonlinearity"]) for claim in printed("nonlinearity")
             for point in claim.setting.grid.points().values()}
    rows = beside(((name, claim, hyla[hyla["nonlinearity"] == name])
                   for claim, name in names.items()), comparable=work.preset == "paper")
    done = rows[rows["n"] > 0]
    softmax = in_points(runs[runs["kind"] == "softmax"])
    return Findings(
        summary=sentences(
            "OOD accuracy of HYLA in points: " + ", ".join(
                f"{row.row} {row.ours:.1f}" for row in done.itertuples()) + "."
            if len(done) else "",
            f"Softmax attention: {softmax['ours']:.1f}." if softmax["n"] else "",
            beside_ceiling(runs)) or NOTHING,
        tables={"rows": rows, "runs": runs},
        figures=beside_published("nonlinearity", [Numbers(rows, "100 × OOD accuracy")],
                                 found.heading),
        evidence={claim.id: metric_evidence(work, claim, "accuracy", "ood")
                  for claim in work.claims},
        notes=found.notes)


REPRODUCTIONS = (Reproduction(
    "nonlinearity", "Nonlinearities in the value network of HYLA, on SRAVEN", SHOWS, measure),)
