"""Fig. 5A and B: t-SNE of the last layer's codes on held-out combinations, by target and rule."""

from __future__ import annotations

from latentcode.experiments.paper.measuring.known_rules import caveat, titled
from latentcode.experiments.paper.measuring.over_runs import (
    judged,
    nothing,
    per_kind,
    with_control,
)
from latentcode.experiments.paper.measuring.planes import (
    IN_BRACKETS,
    PICTURES,
    SRAVEN,
    agreement_table,
    last_planes,
    planes,
    planes_figure,
    points_table,
)
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work, by_preset
from latentcode.probes.common.results import where

SHOWS = by_preset("sraven", small=("training.steps=9000",))


def measure(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on rule and target."""
    found = planes(work, work.runs_of(SHOWS[work.preset]), SRAVEN)
    if not found:
        return nothing("SRAVEN")
    last = [(one, one.excess[one.layers[-1]]) for one in found]
    rows = {
        "fig5ab-clusters-by-rule": [(one, excess["rule"]) for one, excess in last],
        "fig5ab-reach-of-rules": [(one, one.reach[one.layers[-1]]["rule"]) for one in found],
        "fig5ab-target-explains-less": [(one, excess["rule"] - excess["target"])
                                        for one, excess in last]}
    evidence = with_control(work.claims, {claim: [one.row(values) for one, values in of_claim]
                                          for claim, of_claim in rows.items()})
    table = last_planes(agreement_table(found))
    runs = [one.run for one in found]
    return Findings(
        summary="Share of the 15 nearest neighbours with the same label above that of shuffled "
                "labels, in the plane of the last layer: "
                + "; ".join(f"{label} {per_kind(where(table, label=label), runs=label == 'rule')}"
                            for label in ("rule", "target")) + ".",
        tables={"neighbours": table},
        figures={"fig5ab": planes_figure(found, list(SRAVEN.values()), last_alone=True,
                                         title=titled(runs))},
        evidence=judged(evidence),
        notes=(IN_BRACKETS, PICTURES, *caveat(runs)),
        raw={"points": points_table(found, last_alone=True)})


REPRODUCTIONS = (Reproduction(
    "fig5ab",
    "t-SNE of the last layer's codes on held-out combinations, by target (A) and by rule (B)",
    SHOWS, measure),)
