"""Fig. 5F: accuracy of probes for the rule on held-out combinations, per layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from latentcode.experiments.evidence.claim import Claim
from latentcode.experiments.paper.measuring.known_rules import caveat, titled
from latentcode.experiments.paper.measuring.over_runs import controls_of, judged, nothing
from latentcode.experiments.paper.measuring.probe_scores import (
    above_controls,
    against,
    first_varying,
    in_layer,
    probe_scores,
    with_controls,
)
from latentcode.experiments.paper.measuring.score_figures import scores_figure
from latentcode.experiments.paper.measuring.scores import of_grid
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work, about, by_preset
from latentcode.probes.common.results import where

SHOWS = by_preset("sraven", small=("training.steps=9000",))
N = {"paper": 4_096, "small": 2_048, "smoke": 200}


def measure(work: Work) -> Findings:
    """Return the balanced accuracy of the rule, of the code and of its controls, per layer."""
    n = N[work.preset]
    found = [(member, run, work.table(run, probe_scores, label="rule", n_train=n, n=n))
             for member, run in work.runs_of(SHOWS[work.preset])]
    if not found:
        return nothing("SRAVEN")
    scores = pd.concat([scores.assign(**about(member, run)) for member, run, scores in found])
    last = in_layer(found, last_layer)
    rows: dict[str, Callable[[Claim], list[dict[Any, Any]]]] = {
        "fig5f-rule-decodable": lambda claim: above_controls(claim, found, last_layer),
        "fig5f-later-layers-more": lambda claim: [
            about(member, run) | {"control": controls_of(claim)[0]}
            | against(scores, last_layer(scores), f"layer {first_varying(scores)}")
            for member, run, scores in found if first_varying(scores) < last_layer(scores)],
        "fig5f-strongly-predictive": lambda claim: where(last, features="code")[
            ["member", "run", "seed", "split_seed", "value"]].to_dict("records")}
    runs = [run for _, run, _ in found]
    return Findings(
        summary=f"Balanced accuracy of the rule on held-out combinations, from the code of the "
                f"last layer: {with_controls(last)}.",
        tables={"balanced_accuracy": scores},
        figures={"fig5f": scores_figure(scores, "balanced accuracy of the rule",
                                        title=titled(runs))},
        evidence=judged({claim.id: rows[claim.id](claim) for claim in work.claims}),
        notes=(of_grid(work, SHOWS[work.preset]), *caveat(runs)))


def last_layer(scores: pd.DataFrame) -> int:
    """Return the number of the last layer."""
    return int(scores["layer"].max())


REPRODUCTIONS = (Reproduction(
    "fig5f", "Balanced accuracy of probes for the rule on held-out combinations, per layer",
    SHOWS, measure),)
