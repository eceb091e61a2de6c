"""SRAVEN: which combinations a split has, and what is drawn from them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_sraven import fields, rules_that_hold, seeded

from latentcode.config import SravenConfig
from latentcode.errors import SplitError
from latentcode.tasks.base import split_combinations
from latentcode.tasks.sraven.task import RULES, Sraven, permute_features


def multisets(task: Sraven, split: str) -> set[tuple[int, ...]]:
    return {tuple(c) for c in task.combinations(split).tolist()}


@settings(max_examples=40)
@given(fields(), st.integers(0, 2**31))
def test_every_rule_holds_and_tokens_agree_with_the_grid(
        fields: dict[str, Any], seed: int) -> None:
    config = SravenConfig(**fields)
    task = Sraven(config)
    m, k, g = config.n_features, config.n_values, config.grid_size
    for split in task.splits:
        batch = task.sample(split, 17, seeded(seed))
        grid, permutations = batch.info["grid"], batch.info["permutations"]
        rules = batch.info["rules"]
        assert grid.shape == (17, g, g, m)
        assert permutations.shape == (17, g, m)
        # One permutation per column, shared by the rows: undoing it restores every rule.
        assert torch.equal(permutations.sort(-1).values, torch.arange(m).repeat(17, g, 1))
        features = permute_features(grid, permutations.argsort(-1)).movedim(-1, 1)
        assert rules_that_hold(features, k).gather(-1, rules[..., None]).all()
        if not config.permuted:
            assert torch.equal(permutations, torch.arange(m).repeat(17, g, 1))
        # The combination is the multiset of the rules, and one of the split.
        combination = task.combinations(split)[batch.combination]
        assert torch.equal(rules.sort(-1).values, combination)
        if config.rule_order == "sorted":
            assert torch.equal(rules, combination)
        # Tokens: panels in reading order, one-hot, the response blank; targets: the response.
        assert batch.inputs.shape == (17, config.n_tokens, k)
        assert batch.inputs.dtype == torch.float32
        assert batch.targets.dtype == torch.int64
        assert torch.equal(batch.targets, grid[:, g - 1, g - 1])
        assert not batch.inputs[:, -m:].any()
        context = batch.inputs[:, :-m]
        assert torch.equal(context.sum(-1), torch.ones(17, config.n_tokens - m))
        assert torch.equal(context.argmax(-1), grid.reshape(17, -1)[:, :-m])


@pytest.mark.parametrize(("n_features", "fraction"), [(1, 0.0), (2, 0.3), (4, 0.25), (5, 0.9)])
def test_splits_are_those_of_combinations(n_features: int, fraction: float) -> None:
    config = SravenConfig(n_features=n_features, ood_fraction=fraction, split_seed=3)
    task = Sraven(config)
    every = [tuple(c) for c in task.all_combinations.tolist()]
    assert every == list(combinations_with_replacement(range(len(RULES)), n_features))
    train, ood = split_combinations(every, len(RULES), fraction, 3, distinct=False)
    assert task.splits == (("train", "test", "ood") if ood else ("train", "test"))
    for split in task.splits:
        assert multisets(task, split) == set(ood if split == "ood" else train)
    with pytest.raises(SplitError, match="largest possible fraction here is"):
        Sraven(replace(config, ood_fraction=0.999))


def test_explicit_held_out_combinations() -> None:
    task = Sraven(SravenConfig(n_features=2, held_out=((3, 1), (0, 0))))
    assert multisets(task, "ood") == {(1, 3), (0, 0)}
    batch = task.sample("ood", 50, seeded(0))
    assert {tuple(sorted(r)) for r in batch.info["rules"].tolist()} == {(1, 3), (0, 0)}
    assert not multisets(task, "train") & {(1, 3), (0, 0)}
    with pytest.raises(SplitError, match=r"constituents \[0\]"):
        Sraven(SravenConfig(n_features=2, held_out=tuple((0, r) for r in range(8))))


def test_rule_order() -> None:
    drawn = Sraven(SravenConfig()).sample("train", 20_000, seeded(1)).info["rules"]
    share = torch.stack([(drawn == r).float().mean(0) for r in range(8)])  # [rule, feature]
    assert share.min() > 0
    # Every feature sees the same distribution of rules: five standard errors of a difference.
    assert (share - share.mean(1, keepdim=True)).abs().max() < 5 * (0.25 * 2 / 20_000) ** 0.5
    drawn = Sraven(SravenConfig(rule_order="sorted")).sample("train", 20_000, seeded(1)).info[
        "rules"]
    assert (drawn[:, 0] == 0).float().mean() > 0.3 > (drawn[:, -1] == 0).float().mean()


def test_column_permutations_are_uniform_and_independent() -> None:
    task = Sraven(SravenConfig(n_features=3))
    permutations = task.sample("train", 21_600, seeded(2)).info["permutations"]
    code = (permutations * torch.tensor([9, 3, 1])).sum(-1)  # [B, column]
    counts = torch.unique(code, dim=0, return_counts=True)[1]
    assert len(counts) == 6**3
    assert (counts - 100).abs().max() < 50  # five standard deviations of a count
