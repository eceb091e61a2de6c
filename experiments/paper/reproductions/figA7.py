"""Fig. A7: t-SNE of the codes of a softmax transformer of 16 layers, by rule and by target."""

from __future__ import annotations

import pandas as pd

from latentcode.experiments.evidence.claim import Setting
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
    SRAVEN,
    agreement_table,
    planes,
    planes_figure,
    points_table,
    target_over_rule,
)
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work
from latentcode.probes.common.results import where

SHOWS = {"paper": (Setting("paper", "sraven", ("kind=softmax", "model.n_layers=16",
                                               "training.steps=312500")),),
         "small": (),
         "smoke": (Setting("smoke", "sraven", ("kind=softmax", "model.n_layers=9")),)}
ENDS = 4
"""Layers that count as early ones, and as the last ones."""


def measure(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on rule and target."""
    found = planes(work, work.runs_of(SHOWS[work.preset]), SRAVEN)
    if not found:
        return nothing("a softmax transformer of 16 layers on SRAVEN")
    early = [one.row(target_over_rule(one, one.layers[:ENDS])
                     - target_over_rule(one, one.layers[-ENDS:])) for one in found]
    rows = {"figA7-deep-softmax-clusters-by-rule":
            [one.row(one.excess[one.layers[-1]]["rule"]) for one in found],
            "figA7-deep-softmax-reach-of-rules":
            [one.row(one.reach[one.layers[-1]]["rule"]) for one in found],
            "figA7-deep-softmax-target-early": early}
    table, runs = agreement_table(found), [one.run for one in found]
    last = where(table[table["layer"] == table["layer"].max()], label="rule")
    return Findings(
        summary="Share of the 15 nearest neighbours of the same rule above that of shuffled rules, "
                f"in the plane of the last layer: {per_kind(last)}. Agreement on the target minus "
                f"that on the rule, first {ENDS} layers less last {ENDS}: "
                f"{per_kind(pd.DataFrame(early), runs=False)}.",
        tables={"neighbours": table, "early_less_last": pd.DataFrame(early)},
        figures={"figA7": planes_figure(found[:1], [SRAVEN["rule"], SRAVEN["target"]],
                                        last_alone=False, layers_across=True,
                                        title=titled(runs))},
        evidence=judged(with_control(work.claims, rows)),
        notes=(NO_PLANE, IN_BRACKETS, "The pictures are of the first run, the numbers of all.",
               *caveat(runs)),
        raw={"points": points_table(found)})


REPRODUCTIONS = (Reproduction(
    "figA7",
    "t-SNE of the codes of a softmax transformer of 16 layers, by rule (A) and by target (B)",
    SHOWS, measure),)
