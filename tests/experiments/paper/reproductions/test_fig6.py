"""Fig. 6: how much of the gap between linear and softmax attention HYLA closes, and verdicts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from latentcode.experiments.paper.reproduction import metric_evidence, reproduction
from latentcode.experiments.paper.reproductions.fig6 import price, shares
from latentcode.experiments.paper.verdicts import COMPARED, evidence, judge
from tests.helpers.paper_runs import Scores, made_up, work

CLAIMS = reproduction("fig6").claims
LOSSES = {"softmax": 3.0, "linear": 4.0, "hyla": 3.25}


def rows(losses: dict[str, list[float]]) -> pd.DataFrame:
    return evidence({"member": f"kind={kind},text=here", "run": f"{kind} {seed}", "seed": seed,
                     "split_seed": seed, "value": value}
                    for kind, values in losses.items() for seed, value in enumerate(values))


def test_shares_are_of_one_seed_and_left_out_where_softmax_is_behind() -> None:
    found = shares(rows({"softmax": [3.0, 5.0, 2.0], "linear": [4.0, 4.0, 4.0],
                         "hyla": [3.25, 3.0, 4.5]}))
    assert found["member"].tolist() == [COMPARED] * 2
    assert found["seed"].tolist() == [0, 2]
    assert found["value"].tolist() == pytest.approx([0.75, -0.25])
    assert shares(rows({"softmax": [3.0], "hyla": [3.5]})).empty
    assert shares(evidence([])).empty


def test_three_seeds_of_each_kind_decide_what_is_claimed(tmp_path: Path) -> None:
    def scores(member: str, config: object) -> Scores:
        kind = member.split(",")[0].removeprefix("kind=")
        return {("test", "loss"): LOSSES[kind], ("train", "loss"): 0.0}

    asked = [claim for claim in CLAIMS if claim.setting == CLAIMS[0].setting]
    known = made_up([CLAIMS[0].setting], scores, seeds=3)
    evidence_of = {claim.id: metric_evidence(work(known, tmp_path, "paper", CLAIMS), claim,
                                             "loss", "test") for claim in asked}
    verdicts = {claim.id: judge(claim, shares(evidence_of[claim.id]) if claim.rule.name == "bound"
                                else evidence_of[claim.id]) for claim in asked}
    assert len(verdicts) >= 3
    assert {judgement.verdict for judgement in verdicts.values()} == {"agrees"}
    close, = verdicts["fig6-hyla-close-to-softmax"].parts
    assert close.estimate == pytest.approx(0.75)


def test_the_price_of_the_published_setting_is_arithmetic() -> None:
    weights = 6 * (4 * 512 * 512 + 2 * 512 * 2_048) + 512 * 32_000
    tokens = 495_911 * 256 * 1_024  # 130 billion
    of_pairs = 6 * 1_024 * 8 * 64  # one sum over the features of all keys, heads and layers
    found = price().set_index("kind")
    assert found.loc["softmax", "flops"] == pytest.approx(tokens * 6 * (weights + 2 * of_pairs))
    assert found.loc["hyla", "flops"] == pytest.approx(tokens * 6 * (weights + 3 * of_pairs))
    assert found.loc["hyla", "hours_least"] == pytest.approx(
        found.loc["hyla", "flops"] / (0.4 * 989e12) / 3_600)
    assert (found["hours_most"] == 2 * found["hours_least"]).all()
