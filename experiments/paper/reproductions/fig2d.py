"""Fig. 2D: t-SNE of the query's codes on held-out functions, coloured by target and by term."""

from __future__ import annotations

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.measuring.over_runs import controls_of, judged, nothing, per_kind
from latentcode.experiments.paper.measuring.planes import (
    LOGIC,
    agreement_table,
    planes,
    planes_figure,
    points_table,
)
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work
from latentcode.probes.common.results import where

KINDS = "kind=softmax,linear,hyla"
PUBLISHED = Setting("paper", "logic", (KINDS,))
SHOWS = {"paper": (PUBLISHED,), "small": (PUBLISHED,),
         "smoke": (Setting("smoke", "logic", (KINDS,)),)}


def measure(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on function, term and target."""
    found = planes(work, work.runs_of(SHOWS[work.preset]), LOGIC)
    if not found:
        return nothing("fuzzy logic")
    rows = {
        "fig2d-clusters-by-function": [(one, one.excess[one.layers[-1]]["function"])
                                       for one in found],
        "fig2d-clusters-by-first-term": [(one, one.excess[one.layers[-1]]["term 1"])
                                         for one in found],
        "fig2d-target-explains-less": [
            (one, one.excess[one.layers[-1]]["function"] - one.excess[one.layers[-1]]["target"])
            for one in found]}
    evidence = {claim.id: [one.row(values) | {"control": controls_of(claim)[0]}
                           for one, values in rows[claim.id]] for claim in work.claims}
    table = agreement_table(found)
    last = table[table["layer"] == table.groupby("run")["layer"].transform("max")]
    said = "; ".join(f"{label} {per_kind(where(last, label=label), runs=label == 'target')}"
                     for label in LOGIC)
    return Findings(
        summary="Share of the 15 nearest neighbours with the same label above that of shuffled "
                f"labels, in the plane of the last layer: {said}.",
        tables={"neighbours": last},
        figures={"fig2d": planes_figure(found, [LOGIC["target"], LOGIC["term 1"]],
                                        last_alone=True)},
        evidence=judged(evidence),
        notes=("Codes of held-out functions, one context shared by all, the query varies.",
               "In brackets below the panels: the same of shuffled labels. Agreement on the target "
               "is that of five classes of equal size.",
               "The pictures are of the first run of each kind, the numbers of all."),
        raw={"points": points_table(found, last_alone=True)})


REPRODUCTION = Reproduction(
    "t-SNE of the codes of the query on held-out functions, by target and by term 1", SHOWS,
    measure)
