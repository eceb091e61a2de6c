"""Fig. 5E: cosines between the mean codes of rules in HYLA, beside the rules that it confuses.

`similarity` has the cosines, the mean codes, and the contrasts that claims are judged by.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import Normalize, TwoSlopeNorm

from latentcode.codes.reader import instances
from latentcode.config import SravenConfig
from latentcode.experiments.paper.claims import Claim
from latentcode.experiments.paper.reproduction import (
    Findings,
    Reproduction,
    Work,
    about,
    as_evidence,
    by_preset,
    controls_of,
)
from latentcode.experiments.paper.wording import caveat, knows_rules, n_runs, nothing, titled
from latentcode.figures.panels import heat_map
from latentcode.figures.style import Figure
from latentcode.models.hooks import evaluating
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import where
from latentcode.probes.similarity import SimilarityResult, similarity
from latentcode.runs import Run
from latentcode.tasks.sraven.task import DISTRIBUTE, RULES, aligned, complete, rules_shown

SHOWS = by_preset("sraven", kinds="kind=hyla", small=("training.steps=9000",))
N = {"paper": 4_096, "small": 2_048, "smoke": 300}
PAIR_OF_RULES = ("sum", "difference")
"""The rules that the paper says have very similar codes."""
LARGEST_OTHER = "the largest cosine of sum or difference with any other rule"
SHUFFLED = "the same of sum and difference with rules shuffled among combinations"
"""Controls, in the words of the claim."""
AT_ONCE = 250
"""Instances of a forward pass."""


def measure(work: Work) -> Findings:
    """Return the cosines of mean codes in the last layer, and the confusion of the rules."""
    runs = list(work.runs_of(SHOWS[work.preset]))
    if not runs:
        return nothing("HYLA on SRAVEN")
    n = N[work.preset]
    compared = [work.measured(run, similarity, SimilarityResult, label="rule", n=n)
                for _, run in runs]
    alike = _of_runs(runs, [sum_and_difference(result) for result in compared])
    confused = _of_runs(runs, [work.table(run, confusion, n=n) for _, run in runs])
    cosines = _of_runs(runs, [_last_layer(result) for result in compared])
    last = alike[alike["layer"] == alike["layer"].max()]
    rows = where(last, features="code", centring="raw")
    known = {run.name for _, run in runs if knows_rules(run)}
    evidence = {claim.id: evidence_of(claim, rows[rows["run"].isin(known)])
                for claim in work.claims}
    _, first = runs[0]
    return Findings(
        summary=_said(rows),
        tables={"sum_and_difference": alike, "cosines": cosines, "confusion": confused},
        figures={"fig5e": _drawn(where(cosines, run=first.name), where(confused, run=first.name),
                                 titled([first]))},
        evidence=evidence,
        notes=("Judged on models that know their rules alone, as one that takes sum for difference "
               "would show the same.",
               "The picture is of the first run, the numbers of all. Centred: the mean of the "
               "rules taken away first.", *caveat(run for _, run in runs)))


def evidence_of(claim: Claim, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the differences from a claim's controls in runs, of which there may be none."""
    contrasts = rows.rename(columns={"against": "control"})
    return as_evidence(contrasts[contrasts["control"].isin(controls_of(claim))].to_dict("records"))


def sum_and_difference(alike: SimilarityResult) -> pd.DataFrame:
    """Is cos(m_sum, m_difference) larger than with any other rule, and than by chance?

    m_r is the mean code of rule r at the paper's pair, on held-out combinations. A row per layer,
    `features` (`code`, or the `residual` stream at the query), `centring` and `against`: the cosine
    (None), or its difference from `LARGEST_OTHER` and, of the code, from `SHUFFLED`, the mean over
    20 shuffles; `value`, with the 95 % interval over combinations. Nothing for a layer whose codes
    do not vary, and for a task without these rules.
    """
    names = {"largest other": LARGEST_OTHER, "shuffled": SHUFFLED}
    differences = alike.contrasts.table
    differences = differences[differences["against"].isin(list(names))]
    every = pd.concat([alike.cosines.assign(against=None),
                       differences.assign(against=differences["against"].map(names))])
    # Classes are in alphabetical order, and a cosine is the same both ways.
    pair = where(every, row=min(PAIR_OF_RULES), column=max(PAIR_OF_RULES))
    pair = pair[pair["features"].isin(["code", "residual"])].dropna(subset="value")
    return pair.sort_values(["layer", "features", "centring"], kind="stable", ignore_index=True)[
        ["layer", "features", "centring", "against", "value", "low", "high"]]


def confusion(run: Run, *, n: int = 4_096, seed: int = 0, device: str = "cpu") -> pd.DataFrame:
    """Which rule's answers does a model give, under each rule, on held-out combinations?

    A row per rule and rule `as` whose answer it is: `value`, the share of response tokens under
    `rule` that get the answer that `as` would prescribe and that is not the right one (where `as`
    is the rule itself: that are right), of the `n` tokens. A wrong answer that several rules give
    counts for each. Distribute-three prescribes none to a row of another rule.
    """
    config = run.config.task
    assert isinstance(config, SravenConfig)
    batch = instances(config, "ood", n, seed=seed, device=device)
    model = run.load_model(device=device)
    features = aligned(batch.info["grid"], batch.info["permutations"]).movedim(-1, 1)
    possible = complete(features, config.n_values)[1]  # [B, M, rule]
    with evaluating(model):
        logits = torch.cat([model(part) for part in batch.inputs.split(AT_ONCE)])
    answers = logits[:, -config.n_features:].argmax(-1)
    right = answers == batch.targets
    rules = rules_shown(batch)
    rows = []
    for rule, name in enumerate(RULES):
        of_rule = rules == rule
        for other, given in enumerate(RULES):
            if other == DISTRIBUTE != rule:
                continue
            hit = right if other == rule else (answers == possible[..., other]) & ~right
            if bool(of_rule.any()):
                rows.append({"rule": name, "as": given, "n": int(of_rule.sum()),
                             "value": float(hit[of_rule].float().mean())})
    return pd.DataFrame(rows)


def _of_runs(runs: Sequence[tuple[str, Run]], tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.assign(**about(*of_run))
                      for of_run, table in zip(runs, tables, strict=True)], ignore_index=True)


def _last_layer(result: SimilarityResult) -> pd.DataFrame:
    return where(result.cosines, layer=max(result.settings["layers"]))


def _said(rows: pd.DataFrame) -> str:
    cosines = rows[rows["against"].isna()]
    if not len(cosines):
        return "The task's held-out combinations lack sums or differences."
    other, shuffled = (where(rows, against=control)["value"].mean()
                       for control in (LARGEST_OTHER, SHUFFLED))
    mean = cosines["value"].mean()
    return (f"In HYLA's last layer the mean codes of sum and difference have a cosine of "
            f"{mean:.2f} ({n_runs(cosines)}); the largest of either with another rule is "
            f"{mean - other:.2f}, with shuffled rules it is {mean - shuffled:.2f}.")


def _drawn(cosines: pd.DataFrame, confused: pd.DataFrame, title: str) -> Figure:
    code = where(cosines, features="code")
    rules = [rule for rule in RULES if rule in set(confused["rule"]) | set(code["row"])]
    signed = TwoSlopeNorm(0.0, -1.0, 1.0)
    shown = [("cosine of mean codes", where(code, centring="raw"), ("row", "column"), signed),
             ("centred", where(code, centring="centred"), ("row", "column"), signed),
             ("answered as", confused, ("rule", "as"), Normalize(0.0, 1.0))]
    # Higher than the squares with their words need, or these would touch its edges.
    with panels(1, len(shown), 3.3 * len(shown), 3.8, title) as (figure, grid):
        for axes, (name, table, (down, across), norm) in zip(grid[0], shown, strict=True):
            matrix = table.pivot(index=down, columns=across, values="value").reindex(
                index=rules, columns=rules)
            drawn = heat_map(axes, matrix, norm, numbers=True, fontsize=6.0, rotation=90.0)
            axes.set(title=name, box_aspect=1.0)
            if not np.isfinite(matrix.to_numpy()).any():
                axes.set_xlabel("the codes do not vary")
            figure.colorbar(drawn, ax=axes, fraction=0.045, pad=0.02)
        for axes in grid[0, 1:]:
            axes.set_yticklabels([])
    return figure


REPRODUCTIONS = (Reproduction(
    "fig5e", "Cosines between the mean codes of rules in HYLA, beside the rules that it confuses",
    SHOWS, measure),)
