"""The page: what is counted once, what stands apart, and what is said of claims that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentcode.experiments.paper import report
from latentcode.experiments.paper.claims import RESULTS, load_claims, read_claims
from latentcode.experiments.paper.grouping import (
    GROUPS,
    PRINTED,
    counted,
    group,
    in_words,
    observations,
    said,
    verdict,
)
from latentcode.experiments.paper.results import N_SPLITS, answers, central, results_in

CLAIMS = {claim.id: claim for claim in load_claims()}
COMMITTED = Path(__file__).parents[3] / "experiments" / "results" / "reproduced"


def judged(name: str, outcome: str) -> dict[str, str]:
    return {"id": name, "verdict": outcome, "source": CLAIMS[name].source}


def test_an_observation_counts_once_for_each_verdict() -> None:
    one = ["fig2b-terms-decodable", "fig2d-clusters-by-function", "fig2d-target-explains-less"]
    assert len({CLAIMS[name].observation for name in one}) == 1
    claims = [judged(name, "differs") for name in one]
    assert counted(claims) == {"differs": 1}
    assert counted([*claims[:2], judged(one[2], "undecided")]) == {"differs": 1, "undecided": 1}
    assert list(observations(claims).values()) == [claims]
    assert observations(claims[:1]) == {}
    assert counted([judged("fig4-wider", "agrees"), judged("fig4-deeper", "agrees")]) == {
        "agrees": 2}


def test_what_others_took_the_place_of_is_not_counted() -> None:
    old = "causal-sraven-codes-answer"
    kinds = CLAIMS[old].superseded_by
    assert len(kinds) == 3
    assert counted([judged(old, "differs"), *(judged(name, "agrees") for name in kinds)]) == {
        "agrees": 3}
    assert said(judged(old, "differs")) == "**differs** (superseded)"


def test_an_erratum_is_called_one() -> None:
    assert verdict(judged("figA9-number-of-tasks", "differs")) == PRINTED
    assert verdict(judged("figA9-number-of-tasks", "agrees")) == "agrees"
    assert said(judged("tabA2-less-than-half-a-percent", "differs")) == "erratum-like"
    assert "threshold questioned" in said(judged("fig2d-clusters-by-function", "differs"))


def test_groups_and_words() -> None:
    assert group(judged("fig6-small-softmax-best", "agrees"), "fig6") == "ours"
    assert group(judged("fig6-softmax-best", "not run"), "fig6") == "empirical"
    assert group(judged("tabA2-k-4", "agrees"), "tabA2") == "task"
    assert in_words({"not run": 2, "agrees": 3, "differs": 1}) == (
        "3 agree, 1 differs, 2 not run at this size")
    assert set(report.ORDER) == set(RESULTS)


def test_the_abstract_rests_on_claims_of_the_paper_that_are_there() -> None:
    assert 5 <= len(central()) <= 8
    for entry in central():
        for name in entry["claims"]:
            assert not CLAIMS[name].source.startswith("ours"), name


def test_what_supersedes_is_a_claim_of_one_kind_with_the_same_rule() -> None:
    for claim in CLAIMS.values():
        for name in claim.superseded_by:
            (member,) = CLAIMS[name].setting.grid.points()
            assert member in claim.setting.grid.points()
            assert CLAIMS[name].rule == claim.rule
    with pytest.raises(Exception, match="superseded_by of claim"):
        read_claims([{**_plain("figA9-number-of-tasks"), "superseded_by": ["fig9"]}], "here")


def _plain(name: str) -> dict[str, object]:
    from latentcode.config import to_dict

    return to_dict(CLAIMS[name])


@pytest.mark.skipif(not COMMITTED.exists(), reason="a checkout has the results")
def test_the_committed_page_is_fair() -> None:
    found = {preset: results_in(COMMITTED, preset) for preset in N_SPLITS}
    judged_claims = {claim["id"]: (name, claim) for name, result in found["paper"].items()
                     for claim in result["claims"]}
    for name, (result, claim) in judged_claims.items():
        if claim["verdict"] == "differs" and group(claim, result) != "ours":
            assert name in answers(), name
    assert set(answers()) <= set(judged_claims)
    text = report.page(found, COMMITTED, COMMITTED.parent)
    places = [text.index("## What the abstract says"), text.index("## One observation: "),
              *(text.index(f"\n## {title}\n") for title in GROUPS.values())]
    assert places == sorted(places)
    assert all(f"`{claim}`" in text for claim in CLAIMS)
