"""Fig. 2B: F1 of probes for the terms of held-out functions, per layer, from the query's code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd

from latentcode.experiments.paper.measuring.logic_codes import (
    NOTE,
    READINGS,
    SHOWS,
    SUFFIXES,
    TITLES,
    reading,
    runs_by_setting,
)
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

N = {"paper": 4_096, "small": 2_048, "smoke": 200}


def measure(work: Work) -> Findings:
    """Return macro F1 over terms, of the code and of its controls, in both readings."""
    n = N[work.preset]
    tables, figures, sentences, chosen = {}, {}, [], []
    evidence: dict[str, list[dict[str, Any]]] = {}
    for setting, runs in runs_by_setting(work):
        found = {inputs: [(member, run, work.table(run, probe_scores, label="terms", inputs=inputs,
                                                   n_train=n, n=n)) for member, run in runs]
                 for inputs in READINGS}
        scores = pd.concat([scores.assign(inputs=inputs, **about(member, run))
                            for inputs, of_runs in found.items()
                            for member, run, scores in of_runs])
        suffix = SUFFIXES.get(setting, "")
        tables[f"f1{suffix}"] = scores
        figures[f"fig2b{suffix}"] = scores_figure(
            scores, "F1 on held-out functions", rows=READINGS,
            title=TITLES[setting] if suffix else "")
        where_said = f"At {TITLES[setting]}, " if suffix else ""
        for inputs, shared in READINGS.items():
            best = with_controls(in_layer(found[inputs], best_layer))
            sentences.append(f"{where_said}{shared}: macro F1 over terms on held-out functions, in "
                             f"the layer that is best on new instances of training functions: "
                             f"{best}.")
            chosen.append(f"{where_said}{shared}: {per_kind(chosen_on_heldout(found[inputs]))}")
        evidence |= {claim.id: above_controls(claim, found[reading(claim)], best_layer)
                     for claim in work.claims if claim.setting == setting}
    if not tables:
        return nothing("fuzzy logic")
    return Findings(
        summary=" ".join(f"{text[0].upper()}{text[1:]}" for text in sentences),
        tables=tables,
        figures=figures,
        evidence=judged(evidence),
        notes=(of_grid(work, SHOWS[work.preset]), NOTE,
               "Layers are chosen on `test`; the layer that is best on `ood` would give "
               + "; ".join(chosen) + ".",
               "There is no point where all codes are the same: with one query those of layer 0 "
               "are, but in softmax attention.",
               "In a group of terms the best constant answer is to give every one."))


def chosen_on_heldout(found: Sequence[Found]) -> pd.DataFrame:
    """Return the code's scores in the layer that is best on the held-out functions themselves."""
    return where(in_layer(found, partial(best_layer, split="ood")), features="code")


REPRODUCTIONS = (Reproduction(
    "fig2b",
    "F1 of probes for the terms of held-out functions, per layer, from the code of the query",
    SHOWS, measure),)
