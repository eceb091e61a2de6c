"""Fig. 2B and 5F: what probes read from codes of every layer, the terms of functions or the rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pandas as pd

from latentcode.experiments.paper.claims import Claim
from latentcode.experiments.paper.measuring.known_rules import caveat, titled
from latentcode.experiments.paper.measuring.logic_codes import (
    NOTE,
    READINGS,
    SHOWS,
    SUFFIXES,
    TITLES,
    reading,
    runs_by_setting,
)
from latentcode.experiments.paper.measuring.over_runs import (
    controls_of,
    judged,
    nothing,
    per_kind,
)
from latentcode.experiments.paper.measuring.probe_scores import (
    Found,
    above_controls,
    against,
    best_layer,
    first_varying,
    in_layer,
    probe_scores,
    with_controls,
)
from latentcode.experiments.paper.measuring.score_figures import scores_figure
from latentcode.experiments.paper.measuring.scores import of_grid
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work, about, by_preset
from latentcode.probes.common.results import where
from latentcode.runs import Run

OF_RULES = by_preset("sraven", small=("training.steps=9000",))
N = {"paper": 4_096, "small": 2_048, "smoke": 200}


def terms(work: Work) -> Findings:
    """Return macro F1 over terms, of the code and of its controls, in both readings."""
    tables, figures, sentences, chosen = {}, {}, [], []
    evidence: dict[str, list[dict[str, Any]]] = {}
    for setting, runs in runs_by_setting(work):
        found = {inputs: decoded(work, runs, label="terms", inputs=inputs) for inputs in READINGS}
        scores = pd.concat([_joined(of_runs, inputs=inputs) for inputs, of_runs in found.items()])
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
            # In the layer that is best on the held-out functions themselves.
            other = in_layer(found[inputs], partial(best_layer, split="ood"))
            chosen.append(f"{where_said}{shared}: {per_kind(where(other, features='code'))}")
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


def rules(work: Work) -> Findings:
    """Return the balanced accuracy of the rule, of the code and of its controls, per layer."""
    found = decoded(work, work.runs_of(OF_RULES[work.preset]), label="rule")
    if not found:
        return nothing("SRAVEN")
    last, runs = in_layer(found, last_layer), [run for _, run, _ in found]

    def rows(claim: Claim) -> list[dict[Any, Any]]:
        if claim.id == "fig5f-strongly-predictive":
            return where(last, features="code")[
                ["member", "run", "seed", "split_seed", "value"]].to_dict("records")
        if claim.id == "fig5f-later-layers-more":
            return [about(member, run) | {"control": controls_of(claim)[0]}
                    | against(scores, last_layer(scores), f"layer {first_varying(scores)}")
                    for member, run, scores in found if first_varying(scores) < last_layer(scores)]
        return above_controls(claim, found, last_layer)

    return Findings(
        summary=f"Balanced accuracy of the rule on held-out combinations, from the code of the "
                f"last layer: {with_controls(last)}.",
        tables={"balanced_accuracy": _joined(found)},
        figures={"fig5f": scores_figure(_joined(found), "balanced accuracy of the rule",
                                        title=titled(runs))},
        evidence=judged({claim.id: rows(claim) for claim in work.claims}),
        notes=(of_grid(work, OF_RULES[work.preset]), *caveat(runs)))


def decoded(work: Work, runs: Iterable[tuple[str, Run]], **asked: str) -> list[Found]:
    """Return what probes score on the codes of some runs; see `probe_scores`."""
    n = N[work.preset]
    return [(member, run, work.table(run, probe_scores, **asked, n_train=n, n=n))
            for member, run in runs]


def _joined(found: Iterable[Found], **more: str) -> pd.DataFrame:
    return pd.concat([scores.assign(**more, **about(member, run))
                      for member, run, scores in found])


def last_layer(scores: pd.DataFrame) -> int:
    """Return the number of the last layer."""
    return int(scores["layer"].max())


REPRODUCTIONS = (
    Reproduction(
        "fig2b",
        "F1 of probes for the terms of held-out functions, per layer, from the code of the query",
        SHOWS, terms),
    Reproduction(
        "fig5f", "Balanced accuracy of probes for the rule on held-out combinations, per layer",
        OF_RULES, rules))
