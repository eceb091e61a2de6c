"""Verdicts: can every claim of the file have every verdict, and how often by chance?"""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from judged_claims import CLAIMS, best, values_for

from latentcode.experiments.paper.claims import Claim
from latentcode.experiments.paper.verdicts import (
    Verdict,
    can_agree,
    evidence,
    expected_false_differs,
    judge,
)


def test_how_many_numbers_can_agree_and_how_many_differ_by_chance() -> None:
    able = [claim.id for claim in CLAIMS.values() if claim.kind == "number" and can_agree(claim)]
    assert [sum(name.startswith(start) for name in able) for start in (
        "tabA1-logic", "tabA1-sraven", "nonlinearity", "tabA2")] == [1, 7, 3, 2]
    assert not can_agree(CLAIMS["tabA1-sraven-hyla"])
    assert can_agree(CLAIMS["tabA1-sraven-hyla"], splits=100)
    assert can_agree(CLAIMS["fig5f-rule-decodable"])
    assert expected_false_differs(list(CLAIMS.values())) == pytest.approx(35 * 0.05)


VERDICTS: tuple[Verdict, ...] = ("agrees", "differs", "undecided", "not run")


def check_verdict(claim: Claim, verdict: Verdict) -> None:
    """Made-up values of this verdict get it, with words that fit it."""
    rows = [] if verdict == "not run" else values_for(claim, verdict)
    found = judge(claim, evidence(rows))
    assert (found.claim, found.verdict) == (claim.id, verdict), found
    decided = verdict in ("agrees", "differs")
    assert (found.needs is None) == decided, found
    assert ("No prediction" in found.why) == (claim.seen is not None and verdict != "not run")
    texts = [found.why, found.needs or "", *(part.why for part in found.parts)]
    assert not re.search(r"\bnan\b|None|\n", " ".join(texts)), found
    json.dumps(dataclasses.asdict(found), allow_nan=False)


@pytest.mark.parametrize("name", [
    "tabA1-sraven-hyla-linear", "tabA2-k-4", "tabA1-sraven-hyla-ahead", "tabA1-logic-moe-helps",
    "fig2c-hyla-declines-less", "fig5f-strongly-predictive", "tabA2-less-than-half-a-percent",
    "fig5e-sum-and-difference-alike", "figA9-number-of-tasks"])
def test_every_rule_can_have_every_verdict(name: str) -> None:
    for verdict in VERDICTS:
        check_verdict(CLAIMS[name], verdict)


@pytest.mark.slow
def test_every_claim_can_have_every_verdict() -> None:
    for claim in CLAIMS.values():
        for verdict in VERDICTS:
            if verdict != "agrees" or can_agree(claim):
                check_verdict(claim, verdict)
            else:  # a number, whatever its values
                assert judge(claim, evidence(best(claim))).verdict == "undecided"
