"""Fig. 2B: F1 of probes for the terms of held-out functions, per layer, from the query's code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.measuring.over_runs import judged, nothing, per_kind
from latentcode.experiments.paper.measuring.probe_scores import (
    Found,
    above_controls,
    best_layer,
    in_layer,
    probe_scores,
    with_controls,
)
from latentcode.experiments.paper.measuring.score_figures import scores_figure
from latentcode.experiments.paper.measuring.scores import of_grid
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work, about
from latentcode.probes.common.results import where

KINDS = "kind=softmax,linear,hyla"
PUBLISHED = Setting("paper", "logic", (KINDS,))
SHOWS = {"paper": (PUBLISHED,), "small": (PUBLISHED,),
         "smoke": (Setting("smoke", "logic", (KINDS,)),)}
READINGS = {"fixed_context": "one context, the query varies",
            "fixed_query": "one query, the context varies"}
"""What all instances share: as the paper's section 3.2 says, and as its code does."""
CLAIMS = {"fig2b-terms-decodable": "fixed_context",
          "fig2b-terms-decodable-fixed-query": "fixed_query"}
N = {"paper": 4_096, "small": 2_048, "smoke": 200}


def measure(work: Work) -> Findings:
    """Return macro F1 over terms, of the code and of its controls, in both readings."""
    n = N[work.preset]
    found = {inputs: [(member, run, work.table(run, probe_scores, label="terms", inputs=inputs,
                                               n_train=n, n=n))
                      for member, run in work.runs_of(SHOWS[work.preset])]
             for inputs in READINGS}
    if not found["fixed_context"]:
        return nothing("fuzzy logic")
    scores = pd.concat([scores.assign(inputs=inputs, **about(member, run))
                        for inputs, of_runs in found.items() for member, run, scores in of_runs])
    evidence = {claim.id: above_controls(claim, found[CLAIMS[claim.id]], best_layer)
                for claim in work.claims}
    best = {inputs: in_layer(of_runs, best_layer) for inputs, of_runs in found.items()}
    sentences = [
        f"Macro F1 over terms on held-out functions with {shared}, in the layer that is best on "
        f"new instances of training functions: {with_controls(best[inputs])}."
        for inputs, shared in READINGS.items()]
    return Findings(
        summary=" ".join(sentences),
        tables={"f1": scores},
        figures={"fig2b": scores_figure(scores, "F1 on held-out functions", rows=READINGS)},
        evidence=judged(evidence),
        notes=(of_grid(work, SHOWS[work.preset]),
               "Layers are chosen on `test`; the layer that is best on `ood` would give "
               + "; ".join(f"{shared}: {per_kind(chosen_on_heldout(found[inputs]))}"
                           for inputs, shared in READINGS.items()) + ".",
               "There is no point where all codes are the same: with one query those of layer 0 "
               "are, but in softmax attention.",
               "In a group of terms the best constant answer is to give every one."))


def chosen_on_heldout(found: Sequence[Found]) -> pd.DataFrame:
    """Return the code's scores in the layer that is best on the held-out functions themselves."""
    return where(in_layer(found, partial(best_layer, split="ood")), source="code")


REPRODUCTION = Reproduction(
    "F1 of probes for the terms of held-out functions, per layer, from the code of the query",
    SHOWS, measure)
