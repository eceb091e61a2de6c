"""Fig. 2D: t-SNE of the query's codes on held-out functions, coloured by target and by term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from latentcode.experiments.evidence.claim import Claim
from latentcode.experiments.paper.measuring.logic_codes import (
    NOTE,
    READINGS,
    SHOWS,
    SUFFIXES,
    TITLES,
    reading,
    runs_by_setting,
)
from latentcode.experiments.paper.measuring.over_runs import controls_of, judged, nothing, per_kind
from latentcode.experiments.paper.measuring.planes import (
    LOGIC,
    PICTURES,
    Planes,
    agreement_table,
    last_planes,
    planes,
    planes_figure,
    points_table,
)
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work
from latentcode.probes.common.results import where


def measure(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on function, term and target."""
    tables, figures, raw, sentences = {}, {}, {}, []
    evidence: dict[str, list[dict[str, Any]]] = {}
    for setting, runs in runs_by_setting(work):
        found = {inputs: planes(work, runs, LOGIC, inputs) for inputs in READINGS}
        every = [one for of_runs in found.values() for one in of_runs]
        suffix = SUFFIXES.get(setting, "")
        table = agreement_table(every)
        last = last_planes(table)
        tables[f"neighbours{suffix}"] = last
        figures[f"fig2d{suffix}"] = planes_figure(
            every, [LOGIC["target"], LOGIC["function"], LOGIC["term 1"]], last_alone=True,
            inputs=READINGS, title=TITLES[setting] if suffix else "")
        raw[f"points{suffix}"] = points_table(every, last_alone=True)
        sentences += [_said(where(last, inputs=inputs), f"{TITLES[setting]}, " * bool(suffix)
                            + shared) for inputs, shared in READINGS.items()]
        evidence |= {claim.id: _evidence(claim, found[reading(claim)])
                     for claim in work.claims if claim.setting == setting}
    if not tables:
        return nothing("fuzzy logic")
    return Findings(
        summary="Share of the 15 nearest neighbours with the same label above that of shuffled "
                f"labels, in the plane of the last layer. {' '.join(sentences)}",
        tables=tables,
        figures=figures,
        evidence=judged(evidence),
        notes=(NOTE,
               "In brackets below the panels: the same of shuffled labels. Agreement on the target "
               "is that of five classes of equal size.",
               PICTURES),
        raw=raw)


def _said(last: pd.DataFrame, inputs: str) -> str:
    numbers = "; ".join(f"{label} {per_kind(where(last, label=label), runs=label == 'target')}"
                        for label in LOGIC)
    return f"{inputs[0].upper()}{inputs[1:]}: {numbers}."


def _evidence(claim: Claim, found: Sequence[Planes]) -> list[dict[str, Any]]:
    control, = controls_of(claim)
    return [one.row(_judged_by(claim, one)) | {"control": control} for one in found]


def _judged_by(claim: Claim, one: Planes) -> np.ndarray:
    """Return what a claim is about, per point of the last layer's plane."""
    if "-reach-" in claim.id:
        return one.reach[one.layers[-1]]["function"]
    excess = one.excess[one.layers[-1]]
    if claim.id == "fig2d-target-explains-less":
        return np.asarray(excess["function"] - excess["target"])
    return excess["term 1" if claim.id == "fig2d-clusters-by-first-term" else "function"]


REPRODUCTIONS = (Reproduction(
    "fig2d",
    "t-SNE of the codes of the query on held-out functions, by target, function and term 1",
    SHOWS, measure),)
