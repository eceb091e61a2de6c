"""Fig. 6: how much of the gap between linear and softmax attention HYLA closes, verdicts, and
classes of tokens: which repeat an earlier pair, and the control of equal frequency."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from latentcode.experiments.paper.reproduce import REPRODUCTIONS
from latentcode.experiments.paper.reproduction import metric_evidence
from latentcode.experiments.paper.reproductions.scores import (
    ALL,
    CONTROL,
    NEW,
    REPEATED,
    by_class,
    pairs_of,
    repeats_a_pair,
    shares,
)
from latentcode.experiments.paper.verdicts import COMPARED, evidence, judge
from tests.helpers.paper_runs import Scores, made_up, work

CLAIMS = REPRODUCTIONS["fig6"].claims
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


def test_a_pair_that_occurred_anywhere_before_is_repeated() -> None:
    tokens = torch.tensor([[1, 2, 3, 1, 2, 1, 3, 1], [2, 1, 2, 1, 0, 0, 0, 2]])
    # 12 23 31 12 21 13 31; 21 12 21 10 00 00 02
    assert repeats_a_pair(tokens).int().tolist() == [[0, 0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 0, 1, 0]]


def test_the_control_has_every_pair_as_often_as_it_is_repeated() -> None:
    pairs = np.array([5, 5, 5, 5, 7, 7, 7, 9, 3])
    repeated = np.array([1, 1, 1, 0, 1, 0, 0, 1, 0], dtype=bool)
    losses = np.array([1.0, 2.0, 3.0, 8.0, 4.0, 1.0, 3.0, 50.0, 10.0])
    table = by_class(losses, pairs, repeated).set_index("class")
    # Pair 9 is never new and 3 is never repeated: both stay out.
    assert table.loc[REPEATED, "loss"] == pytest.approx((1 + 2 + 3 + 4) / 4)
    assert table.loc[CONTROL, "loss"] == pytest.approx((3 * 8 + 1 * 2) / 4)
    assert table["n"].to_dict() == {REPEATED: 4, CONTROL: 3, NEW: 4, ALL: 9}
    assert table.loc[NEW, "loss"] == pytest.approx((8 + 1 + 3 + 10) / 4)
    assert table.loc[ALL, "loss"] == pytest.approx(losses.mean())


def test_who_knows_what_follows_what_gains_nothing() -> None:
    tokens = torch.randint(5, (20, 30), generator=torch.Generator().manual_seed(0))
    pairs = pairs_of(tokens)
    assert torch.equal(pairs == pairs[3, 4], (tokens[:, :-1] == tokens[3, 4])
                       & (tokens[:, 1:] == tokens[3, 5]))
    bigram = torch.rand(5, 5, dtype=torch.float64)[tokens[:, :-1], tokens[:, 1:]]
    table = by_class(bigram.flatten().numpy(), pairs.flatten().numpy(),
                     repeats_a_pair(tokens).flatten().numpy()).set_index("class")
    assert table.loc[REPEATED, "loss"] == pytest.approx(table.loc[CONTROL, "loss"], abs=1e-12)


def test_where_nothing_repeats_there_is_no_loss_of_it() -> None:
    table = by_class(np.array([1.0, 2.0]), np.array([0, 1]), np.zeros(2, dtype=bool))
    assert table.set_index("class")["n"].to_dict() == {REPEATED: 0, CONTROL: 0, NEW: 2, ALL: 2}
    assert table.set_index("class").loc[[REPEATED, CONTROL], "loss"].isna().all()
