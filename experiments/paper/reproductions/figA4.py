"""Fig. A4: the training loss on SRAVEN, for several widths and depths."""

from __future__ import annotations

from latentcode.experiments.paper.measuring.drawing import Curves, curves_of_kinds
from latentcode.experiments.paper.measuring.scores import learning, no_kind_is_always_lowest, scores
from latentcode.experiments.paper.measuring.words import of_kinds, sentences
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work
from latentcode.experiments.paper.reproductions.fig4 import AXES, SHOWS


def measure(work: Work) -> Findings:
    """Return the loss on `train` over instances, A for several widths and B for several depths."""
    widths, depths = SHOWS[work.preset]
    found = learning(work, (widths, depths))
    tables = {"widths": scores(work, [widths], "train", "loss", AXES),
              "depths": scores(work, [depths], "train", "loss", AXES)}
    return Findings(
        summary=sentences(of_kinds(tables["widths"], "Training loss over widths and instances"),
                          of_kinds(tables["depths"], "Over depths and instances")),
        tables=tables,
        figures=curves_of_kinds("figA4", [
            Curves(tables["widths"], "A width, training loss", "instances", "d_model", log=True),
            Curves(tables["depths"], "B depth, training loss", "instances", "n_layers", log=True),
        ], found.heading),
        evidence={claim.id: no_kind_is_always_lowest(work, claim) for claim in work.claims},
        notes=(*found.notes, "The training loss is that of the finished model without dropout, on "
               "fresh instances of the combinations of training."))


REPRODUCTION = Reproduction(
    "Training loss on SRAVEN over training instances, for several widths and depths",
    SHOWS, measure)
