"""Claims of the paper, judged on rows that a test makes up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latentcode.experiments.paper.claims import (
    Bound,
    Claim,
    Exact,
    Excess,
    Permutation,
    PermutationOfChanges,
    Published,
    Welch,
    load_claims,
)
from latentcode.experiments.paper.verdicts import (
    Judgement,
    Verdict,
    evidence,
    judge,
)

CLAIMS = {claim.id: claim for claim in load_claims()}
Rows = list[dict[str, Any]]


def runs(
    member: str, values: Sequence[float], splits: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None, **more: Any
) -> Rows:
    """One row per run, each with a seed and a split of its own unless they are given."""
    splits, seeds = splits or range(len(values)), seeds or range(len(values))
    return [{"member": member, "run": f"{member}/{i}", "seed": seed, "split_seed": split,
             "value": value, **more}
            for i, (value, split, seed) in enumerate(zip(values, splits, seeds, strict=True))]


def judged(claim: str, rows: Rows) -> Judgement:
    return judge(CLAIMS[claim], evidence(rows))


def verdicts(judgement: Judgement) -> list[Verdict]:
    return [part.verdict for part in judgement.parts]


def published(claim: Claim) -> Published:
    assert claim.published is not None
    return claim.published


def best(claim: Claim) -> Rows:
    """Values whose interval is narrow, and as wide as it has to be."""
    (member,), printed = claim.setting.grid.points(), published(claim)
    assert printed.error is not None
    if printed.over_instances:
        return [{"member": member, "value": printed.value, "se": 1e-9, "n": 10**9}]
    scale = 100.0 if printed.unit == "points" else 1.0
    step = 0.74 * printed.error * np.sqrt(3.0)
    return runs(member, [(printed.value + k * step) / scale for k in (-1, 0, 1)])


def values_for(claim: Claim, verdict: Verdict) -> Rows:
    """Made-up values of a claim that have this verdict."""
    rule, members = claim.rule, list(claim.setting.grid.points())
    sign = {"agrees": 1.0, "differs": -1.0, "undecided": 0.0}[verdict]
    match rule:
        case Welch():
            far = [{**row, "value": row["value"] * 2.0 + 0.1} for row in best(claim)]
            wide = [{**row, "se": 1.0} for row in far]
            return {"agrees": best(claim), "differs": far,
                    "undecided": wide if published(claim).over_instances else far[:2]}[verdict]
        case Permutation():
            return [row for names, base in ((rule.higher, sign), (rule.lower, 0.0))
                    for name in dict.fromkeys(names)
                    for row in runs(name, [base + 0.01 * i for i in range(3)])]
        case PermutationOfChanges():
            sides = ((rule.higher, sign), (rule.higher_from, 0.0), (rule.lower, 0.0),
                     (rule.lower_from, 0.0))
            return [row for names, base in sides for name in dict.fromkeys(names)
                    for row in runs(name, [base + 0.01 * i for i in range(3)])]
        case Bound():
            value = rule.bound + (sign if rule.side == "above" else -sign)
            if claim.id == "tabA2-less-than-half-a-percent":
                return [{"member": members[0], "value": value, "low": value - 0.1,
                         "high": value + 0.1, "n": 20_000}]
            return [row for name in members
                    for row in runs(name, [value + 0.01 * k for k in (-1, 0, 1)])]
        case Excess():
            value = rule.least + 0.5 * sign
            return [row for name in members for control in rule.controls
                    for row in runs(name, 3 * [value], control=control,
                                    low=value - 0.2 - rule.least, high=value + 0.2)]
        case Exact():
            few = {"n": 2} if verdict == "undecided" else {}
            return [{"member": name, "value": max(sign, 0.0), **few} for name in members]
