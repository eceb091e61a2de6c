"""Classes of tokens: which repeat an earlier pair, and the control of equal frequency."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from latentcode.experiments.paper.token_losses import (
    ALL,
    CONTROL,
    NEW,
    REPEATED,
    by_class,
    pairs_of,
    repeats_a_pair,
)


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
