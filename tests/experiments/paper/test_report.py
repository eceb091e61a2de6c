"""The page: what is counted once, and what is committed is what the results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentcode.experiments.paper.claims import RESULTS, load_claims
from latentcode.experiments.paper.reproduce import (
    N_SPLITS,
    PRINTED,
    Row,
    counted,
    page,
    results_in,
    verdict_rows,
)

CLAIMS = {claim.id: claim for claim in load_claims()}
COMMITTED = Path(__file__).parents[3] / "experiments" / "results" / "reproduced"


def row(name: str, outcome: str) -> Row:
    judged = {"id": name, "source": "", "kind": "", "verdict": outcome, "why": "", "needs": "",
              "claim": "", "published": None, "parts": [], "rule": {"name": "exact", "holds": ""}}
    found, = verdict_rows({"a": {"claims": [judged]}})
    return found


def test_an_observation_counts_once_for_each_verdict() -> None:
    one = ["fig2b-terms-decodable", "fig2d-clusters-by-function", "fig2d-target-explains-less"]
    assert len({CLAIMS[name].observation for name in one}) == 1
    claims = [row(name, "differs") for name in one]
    assert counted(claims) == {"differs": 1}
    assert counted([*claims[:2], row(one[2], "undecided")]) == {"differs": 1, "undecided": 1}
    assert counted([row("fig4-wider", "agrees"), row("fig4-deeper", "agrees")]) == {"agrees": 2}


def test_an_erratum_is_called_one() -> None:
    assert row("figA9-number-of-tasks", "differs")["printed_verdict"] == PRINTED
    assert row("figA9-number-of-tasks", "agrees")["printed_verdict"] == "agrees"
    assert row("fig2d-clusters-by-function", "differs")["questioned"]


@pytest.mark.skipif(not COMMITTED.exists(), reason="a checkout has the results")
def test_what_is_committed_is_judged_whole_and_said_on_its_page() -> None:
    results = {preset: results_in(COMMITTED, preset) for preset in N_SPLITS}
    assert list(results["paper"]) == list(RESULTS)
    claims = [claim for result in results["paper"].values() for claim in result["claims"]]
    assert [claim["id"] for claim in claims] == [
        claim.id for name in RESULTS for claim in CLAIMS.values() if claim.result == name]
    text = page(results, COMMITTED, COMMITTED.parent)
    assert (COMMITTED.parent / "README.md").read_text() == text
    assert all(f"`{claim}`)" in text for claim in CLAIMS)
