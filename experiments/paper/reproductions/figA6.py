"""Fig. A6: t-SNE of the codes in all layers after 40 M instances, by target and by rule."""

from __future__ import annotations

import pandas as pd

from latentcode.experiments.paper.measuring.known_rules import caveat, titled
from latentcode.experiments.paper.measuring.over_runs import (
    judged,
    nothing,
    per_kind,
    with_control,
)
from latentcode.experiments.paper.measuring.planes import (
    IN_BRACKETS,
    NO_PLANE,
    PICTURES,
    SRAVEN,
    agreement_table,
    planes,
    planes_figure,
    points_table,
    target_over_rule,
)
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work, by_preset

SHOWS = by_preset("sraven", paper=("training.steps=312500",), small=("training.steps=9000",))


def measure(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on rule and target."""
    found = planes(work, work.runs_of(SHOWS[work.preset]), SRAVEN)
    if not found:
        return nothing("SRAVEN with 40 M instances" if work.preset == "paper" else "SRAVEN")
    change = [one.row(target_over_rule(one, one.layers[:1])
                      - target_over_rule(one, one.layers[-1:]))
              for one in found if len(one.layers) > 1]
    runs = [one.run for one in found]
    return Findings(
        summary="Agreement of the 15 nearest neighbours on the target minus that on the rule, each "
                "above shuffled labels, in the first layer whose codes vary less the same in the "
                f"last: {per_kind(pd.DataFrame(change))}.",
        tables={"neighbours": agreement_table(found), "first_less_last": pd.DataFrame(change)},
        figures={"figA6": planes_figure(found, list(SRAVEN.values()), last_alone=False,
                                        title=titled(runs))},
        evidence=judged(with_control(work.claims, {"figA6-target-in-early-layers": change})),
        notes=(NO_PLANE, IN_BRACKETS, PICTURES, *caveat(runs)),
        raw={"points": points_table(found)})


REPRODUCTIONS = (Reproduction(
    "figA6",
    "t-SNE of the codes on held-out combinations, all layers, by target (A) and by rule (B)",
    SHOWS, measure),)
