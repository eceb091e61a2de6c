"""Fig. A2: the planes of Fig. 2D in all layers, by target, function, term 1 and term 2."""

from __future__ import annotations

from typing import Any

import pandas as pd

from latentcode.experiments.evidence.claim import Setting
from latentcode.experiments.paper.measuring.logic_codes import (
    NOTE,
    PUBLISHED,
    READINGS,
    SMOKE,
    reading,
)
from latentcode.experiments.paper.measuring.over_runs import controls_of, judged, nothing, per_kind
from latentcode.experiments.paper.measuring.planes import (
    LOGIC,
    PICTURES,
    Planes,
    agreement_table,
    planes,
    planes_figure,
    points_table,
)
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work

SHOWS: dict[str, tuple[Setting, ...]] = {
    "paper": (PUBLISHED,), "small": (PUBLISHED,), "smoke": (SMOKE,)}
CLAIMED = ("function", "term 1", "term 2")
"""Each of them has to pass in each layer."""


def measure(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on function, terms and target."""
    runs = list(work.runs_of(SHOWS[work.preset]))
    if not runs:
        return nothing("fuzzy logic")
    found = {inputs: planes(work, runs, LOGIC, inputs) for inputs in READINGS}
    tables = {inputs: agreement_table(of_runs) for inputs, of_runs in found.items()}
    said = "; ".join(f"{shared}: {per_kind(_most(tables[inputs]))}"
                     for inputs, shared in READINGS.items())
    return Findings(
        summary="Share of the 15 nearest neighbours of the same function, term 1 or term 2, above "
                "that of shuffled labels, in the layer and of the label where it is largest: "
                f"{said}.",
        tables={"neighbours": pd.concat(tables.values(), ignore_index=True)},
        figures={name: planes_figure(found[inputs], list(LOGIC.values()), last_alone=False,
                                     title=READINGS[inputs])
                 for name, inputs in (("figA2", "fixed_context"), ("figA2_query", "fixed_query"))},
        evidence=judged({
            claim.id: [row for one in found[reading(claim)]
                       for row in _rows(one, controls_of(claim)[0])] for claim in work.claims}),
        notes=(NOTE,
               "With one query the codes of layer 0 are the same for all instances, but in softmax "
               "attention; such a layer has no plane.",
               "In brackets below the panels: the same of shuffled labels; functions and targets "
               "(in five classes of equal size) are shuffled among instances, terms among "
               "functions.",
               PICTURES),
        raw={"points": points_table([one for of_runs in found.values() for one in of_runs])})


def _most(table: pd.DataFrame) -> pd.DataFrame:
    """Return the largest excess of each run, of the labels that the claim names."""
    claimed = table[table["label"].isin(CLAIMED)]
    return claimed.loc[claimed.groupby(["run", "split_seed", "seed"])["value"].idxmax()]


def _rows(one: Planes, control: str) -> list[dict[str, Any]]:
    return [one.row(one.excess[layer][label]) | {
        "member": f"{one.member}: layer {layer}, {label}", "control": control}
        for layer in one.layers for label in CLAIMED]


REPRODUCTIONS = (Reproduction(
    "figA2",
    "t-SNE of the codes of the query on held-out functions, all layers, by target, function and "
    "terms",
    SHOWS, measure),)
