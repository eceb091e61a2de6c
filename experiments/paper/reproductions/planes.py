"""Fig. 2D, 5A, 5B, A2, A6 and A7: t-SNE planes of codes, and the labels that neighbours share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.measuring.known_rules import caveat, titled
from latentcode.experiments.paper.measuring.logic_codes import (
    NOTE,
    PUBLISHED,
    READINGS,
    SHOWS,
    SMOKE,
    SUFFIXES,
    TITLES,
    reading,
    runs_by_setting,
)
from latentcode.experiments.paper.measuring.over_runs import (
    judged,
    nothing,
    per_kind,
    with_control,
)
from latentcode.experiments.paper.measuring.planes import (
    IN_BRACKETS,
    LOGIC,
    NO_PLANE,
    PICTURES,
    SRAVEN,
    Label,
    Planes,
    agreement_table,
    last_planes,
    planes,
    planes_figure,
    points_table,
    target_over_rule,
)
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work, by_preset
from latentcode.probes.common.results import where

OF_A2: dict[str, tuple[Setting, ...]] = {
    "paper": (PUBLISHED,), "small": (PUBLISHED,), "smoke": (SMOKE,)}
OF_5AB = by_preset("sraven", small=("training.steps=9000",))
OF_A6 = by_preset("sraven", paper=("training.steps=312500",), small=("training.steps=9000",))
OF_A7 = {"paper": (Setting("paper", "sraven", ("kind=softmax", "model.n_layers=16",
                                               "training.steps=312500")),),
         "small": (),
         "smoke": (Setting("smoke", "sraven", ("kind=softmax", "model.n_layers=9")),)}
CLAIMED = ("function", "term 1", "term 2")
"""Labels of Fig. A2: each of them has to pass in each layer."""
ENDS = 4
"""Layers of Fig. A7 that count as early ones, and as the last ones."""
ABOVE = ("Share of the 15 nearest neighbours {} above that of shuffled {}, in the plane of the "
         "last layer")


def fig2d(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on function, term and target."""
    tables, figures, raw, sentences = {}, {}, {}, []
    rows: dict[str, list[dict[str, Any]]] = {}
    for setting, runs in runs_by_setting(work):
        found = {inputs: planes(work, runs, LOGIC, inputs) for inputs in READINGS}
        every = [one for of_runs in found.values() for one in of_runs]
        suffix = SUFFIXES.get(setting, "")
        last = last_planes(agreement_table(every))
        tables[f"neighbours{suffix}"] = last
        figures[f"fig2d{suffix}"] = planes_figure(
            every, [LOGIC["target"], LOGIC["function"], LOGIC["term 1"]], last_alone=True,
            inputs=READINGS, title=TITLES[setting] if suffix else "")
        raw[f"points{suffix}"] = points_table(every, last_alone=True)
        for inputs, shared in READINGS.items():
            said = f"{TITLES[setting]}, {shared}" if suffix else shared
            own = where(last, inputs=inputs)
            sentences.append(f"{said[0].upper()}{said[1:]}: " + "; ".join(
                f"{label} {per_kind(where(own, label=label), runs=label == 'target')}"
                for label in LOGIC) + ".")
        rows |= {claim.id: of_last(claim.id, found[reading(claim)]) for claim in work.claims
                 if claim.setting == setting}
    if not tables:
        return nothing("fuzzy logic")
    return Findings(
        summary=f"{ABOVE.format('with the same label', 'labels')}. {' '.join(sentences)}",
        tables=tables,
        figures=figures,
        evidence=judged(with_control(
            [claim for claim in work.claims if claim.id in rows], rows)),
        notes=(NOTE,
               "In brackets below the panels: the same of shuffled labels. Agreement on the target "
               "is that of five classes of equal size.",
               PICTURES),
        raw=raw)


def figA2(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on function, terms and target."""
    runs = list(work.runs_of(OF_A2[work.preset]))
    if not runs:
        return nothing("fuzzy logic")
    found = {inputs: planes(work, runs, LOGIC, inputs) for inputs in READINGS}
    tables = {inputs: agreement_table(of_runs) for inputs, of_runs in found.items()}
    said = "; ".join(f"{shared}: {per_kind(_most(tables[inputs]))}"
                     for inputs, shared in READINGS.items())
    rows = {claim.id: [one.row(one.excess[layer][label])
                       | {"member": f"{one.member}: layer {layer}, {label}"}
                       for one in found[reading(claim)] for layer in one.layers
                       for label in CLAIMED] for claim in work.claims}
    return Findings(
        summary="Share of the 15 nearest neighbours of the same function, term 1 or term 2, above "
                "that of shuffled labels, in the layer and of the label where it is largest: "
                f"{said}.",
        tables={"neighbours": pd.concat(tables.values(), ignore_index=True)},
        figures={name: planes_figure(found[inputs], list(LOGIC.values()), last_alone=False,
                                     title=READINGS[inputs])
                 for name, inputs in (("figA2", "fixed_context"), ("figA2_query", "fixed_query"))},
        evidence=judged(with_control(work.claims, rows)),
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


def fig5ab(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on rule and target."""
    found = planes(work, work.runs_of(OF_5AB[work.preset]), SRAVEN)
    if not found:
        return nothing("SRAVEN")
    table = last_planes(agreement_table(found))
    said = "; ".join(f"{label} {per_kind(where(table, label=label), runs=label == 'rule')}"
                     for label in ("rule", "target"))
    return _of_sraven(
        "fig5ab", work, found, SRAVEN.values(), last_alone=True,
        summary=f"{ABOVE.format('with the same label', 'labels')}: {said}.",
        tables={"neighbours": table}, notes=(IN_BRACKETS, PICTURES))


def figA6(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on rule and target."""
    found = planes(work, work.runs_of(OF_A6[work.preset]), SRAVEN)
    if not found:
        return nothing("SRAVEN with 40 M instances" if work.preset == "paper" else "SRAVEN")
    change = early_less_late([one for one in found if len(one.layers) > 1], 1)
    return _of_sraven(
        "figA6", work, found, SRAVEN.values(), change=change,
        summary="Agreement of the 15 nearest neighbours on the target minus that on the rule, each "
                "above shuffled labels, in the first layer whose codes vary less the same in the "
                f"last: {per_kind(pd.DataFrame(change))}.",
        tables={"neighbours": agreement_table(found), "first_less_last": pd.DataFrame(change)},
        notes=(NO_PLANE, IN_BRACKETS, PICTURES))


def figA7(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on rule and target."""
    found = planes(work, work.runs_of(OF_A7[work.preset]), SRAVEN)
    if not found:
        return nothing("a softmax transformer of 16 layers on SRAVEN")
    change, table = early_less_late(found, ENDS), agreement_table(found)
    last = where(table[table["layer"] == table["layer"].max()], label="rule")
    return _of_sraven(
        "figA7", work, found, [SRAVEN["rule"], SRAVEN["target"]], change=change,
        layers_across=True,
        summary=f"{ABOVE.format('of the same rule', 'rules')}: {per_kind(last)}. Agreement on the "
                f"target minus that on the rule, first {ENDS} layers less last {ENDS}: "
                f"{per_kind(pd.DataFrame(change), runs=False)}.",
        tables={"neighbours": table, "early_less_last": pd.DataFrame(change)},
        notes=(NO_PLANE, IN_BRACKETS, "The pictures are of the first run, the numbers of all."))


def _of_sraven(
    name: str, work: Work, found: Sequence[Planes], labels: Iterable[Label], *, summary: str,
    tables: Mapping[str, pd.DataFrame], notes: tuple[str, ...],
    change: Sequence[Mapping[str, Any]] = (), last_alone: bool = False,
    layers_across: bool = False,
) -> Findings:
    """Return the findings of a figure of SRAVEN's planes.

    change         the rows of a claim about early layers; those of others are `of_last`
    layers_across  layers across, of the first run alone
    """
    runs = [one.run for one in found]
    return Findings(
        summary=summary, tables=tables,
        figures={name: planes_figure(
            found[:1] if layers_across else found, list(labels), last_alone=last_alone,
            layers_across=layers_across, title=titled(runs))},
        evidence=judged(with_control(work.claims, {
            claim.id: change if "early" in claim.id else of_last(claim.id, found)
            for claim in work.claims})),
        notes=(*notes, *caveat(runs)),
        raw={"points": points_table(found, last_alone=last_alone)})


def of_last(claim: str, found: Sequence[Planes]) -> list[dict[str, Any]]:
    """Return a row per run of what a claim about the last layer's plane says: how far places tell
    the function or rule, how often neighbours agree on it, or by how much more than on the target.
    """
    def values(one: Planes) -> np.ndarray:
        last = one.layers[-1]
        excess, label = one.excess[last], "rule" if "rule" in one.excess[last] else "function"
        if "-reach-" in claim:
            return one.reach[last][label]
        if claim.endswith("target-explains-less"):
            return np.asarray(excess[label] - excess["target"])
        return excess["term 1" if claim.endswith("by-first-term") else label]

    return [one.row(values(one)) for one in found]


def early_less_late(found: Iterable[Planes], n: int) -> list[dict[str, Any]]:
    """Return a row per run: agreement on the target minus that on the rule in the first n layers,
    less the same in the last n."""
    return [one.row(target_over_rule(one, one.layers[:n]) - target_over_rule(one, one.layers[-n:]))
            for one in found]


REPRODUCTIONS = (
    Reproduction(
        "fig2d",
        "t-SNE of the codes of the query on held-out functions, by target, function and term 1",
        SHOWS, fig2d),
    Reproduction(
        "figA2",
        "t-SNE of the codes of the query on held-out functions, all layers, by target, function "
        "and terms",
        OF_A2, figA2),
    Reproduction(
        "fig5ab",
        "t-SNE of the last layer's codes on held-out combinations, by target (A) and by rule (B)",
        OF_5AB, fig5ab),
    Reproduction(
        "figA6",
        "t-SNE of the codes on held-out combinations, all layers, by target (A) and by rule (B)",
        OF_A6, figA6),
    Reproduction(
        "figA7",
        "t-SNE of the codes of a softmax transformer of 16 layers, by rule (A) and by target (B)",
        OF_A7, figA7))
