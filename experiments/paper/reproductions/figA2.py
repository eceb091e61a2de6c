"""Fig. A2: the planes of Fig. 2D in all layers, by target, function, term 1 and term 2."""

from __future__ import annotations

from latentcode.experiments.paper.measuring.over_runs import controls_of, judged, nothing, per_kind
from latentcode.experiments.paper.measuring.planes import (
    LOGIC,
    agreement_table,
    planes,
    planes_figure,
    points_table,
)
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work
from latentcode.experiments.paper.reproductions.fig2d import SHOWS

CLAIMED = ("function", "term 1", "term 2")
"""Each of them has to pass in each layer."""


def measure(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on function, terms and target."""
    found = planes(work, work.runs_of(SHOWS[work.preset]), LOGIC)
    if not found:
        return nothing("fuzzy logic")
    evidence = {claim.id: [
        one.row(one.excess[layer][label]) | {
            "member": f"{one.member}: layer {layer}, {label}", "control": controls_of(claim)[0]}
        for one in found for layer in one.layers for label in CLAIMED] for claim in work.claims}
    table = agreement_table(found)
    claimed = table[table["label"].isin(CLAIMED)]
    most = claimed.loc[claimed.groupby(["run", "split_seed", "seed"])["value"].idxmax()]
    return Findings(
        summary="Share of the 15 nearest neighbours of the same function, term 1 or term 2, above "
                "that of shuffled labels, in the layer and of the label where it is largest: "
                f"{per_kind(most)}.",
        tables={"neighbours": table},
        figures={"figA2": planes_figure(found, list(LOGIC.values()), last_alone=False)},
        evidence=judged(evidence),
        notes=("Codes of held-out functions, one context shared by all, the query varies.",
               "In brackets below the panels: the same of shuffled labels; functions and targets "
               "(in five classes of equal size) are shuffled among instances, terms among "
               "functions.",
               "The pictures are of the first run of each kind, the numbers of all."),
        raw={"points": points_table(found)})


REPRODUCTION = Reproduction(
    "t-SNE of the codes of the query on held-out functions, all layers, by target, function and "
    "terms", SHOWS, measure)
