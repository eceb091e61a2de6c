"""The rules of SRAVEN: drawn, checked and completed as a slow reading of the paper says."""

from __future__ import annotations

import json
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import GOLDEN
from small_sraven import rules_that_hold

from latentcode.config import SravenConfig
from latentcode.tasks.sraven.task import (
    RULES,
    Sraven,
    aligned,
    complete,
    feature_grids_per_rule,
    permute_features,
    sample_features,
    tokenize,
)

FACTS = GOLDEN / "sraven_facts.npz"


def follows(rule: str, rows: list[list[int]], n_values: int) -> bool:
    """Slow reference: does `rule` hold in every row? Written from the paper's list (B.3)."""
    if rule == "distribute-three":
        symbols = set(rows[0])
        return len(symbols) == len(rows[0]) and all(
            set(row) == symbols and len(row) == len(set(row)) for row in rows)
    for row in rows:
        if rule == "constant":
            good = all(symbol == row[0] for symbol in row)
        elif rule == "sum":
            good = row[-1] == sum(row[:-1]) % n_values
        elif rule == "difference":
            rest = row[0]
            for symbol in row[1:-1]:
                rest -= symbol
            good = row[-1] == rest % n_values
        else:
            good = all(b == (a + int(rule)) % n_values
                       for a, b in pairwise(row))
        if not good:
            return False
    return True


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    grid_size = draw(st.integers(2, 4))
    return grid_size, draw(st.integers(max(3, grid_size), 17))


@settings(max_examples=25)
@given(sizes(), st.integers(0, 2**31))
def test_every_drawn_feature_follows_its_rule(size: tuple[int, int], seed: int) -> None:
    grid_size, n_values = size
    generator = torch.Generator().manual_seed(seed)
    rules = torch.arange(len(RULES)).repeat(20, 1)
    grids = sample_features(rules, n_values, grid_size, generator)
    assert grids.shape == (20, len(RULES), grid_size, grid_size)
    assert grids.min() >= 0
    assert grids.max() < n_values
    held = rules_that_hold(grids, n_values)
    for i in range(20):
        for r, rule in enumerate(RULES):
            rows = grids[i, r].tolist()
            assert follows(rule, rows, n_values), (rule, rows)
            assert held[i, r].tolist() == [follows(name, rows, n_values) for name in RULES]


@settings(max_examples=25)
@given(sizes(), st.integers(0, 2**31))
def test_completing_a_context_agrees_with_trying_every_symbol(
        size: tuple[int, int], seed: int) -> None:
    grid_size, n_values = size
    generator = torch.Generator().manual_seed(seed)
    drawn = sample_features(torch.arange(len(RULES)).repeat(3, 1), n_values, grid_size, generator)
    noise = torch.randint(n_values, (6, grid_size, grid_size), generator=generator)
    spoilt = drawn.flatten(0, 1).clone()
    spoilt[:, -1, -1] = -1
    grids = torch.cat((spoilt, noise))
    fits, answers = complete(grids, n_values)
    for i, grid in enumerate(grids.tolist()):
        for r, rule in enumerate(RULES):
            possible = [symbol for symbol in range(n_values)
                        if follows(rule, [*grid[:-1], [*grid[-1][:-1], symbol]], n_values)]
            assert bool(fits[i, r]) == bool(possible)
            if possible:
                assert possible == [answers[i, r].item()]


@pytest.mark.parametrize(("n_values", "grid_size"), [(3, 2), (5, 2), (3, 3), (4, 2)])
def test_number_of_feature_grids_per_rule(n_values: int, grid_size: int) -> None:
    symbols = torch.cartesian_prod(*[torch.arange(n_values)] * grid_size**2)
    held = rules_that_hold(symbols.view(-1, grid_size, grid_size), n_values)
    assert tuple(held.sum(0).tolist()) == feature_grids_per_rule(n_values, grid_size)


def test_drawn_features_are_uniform_over_the_grids_of_their_rule() -> None:
    # chi-squared against the uniform distribution that the posterior takes as its likelihood.
    n, n_values, grid_size = 40_000, 4, 2
    generator = torch.Generator().manual_seed(3)
    digits = n_values ** torch.arange(grid_size**2)
    for rule, support in enumerate(feature_grids_per_rule(n_values, grid_size)):
        grids = sample_features(torch.full((n,), rule), n_values, grid_size, generator)
        counts = torch.unique((grids.flatten(1) * digits).sum(1), return_counts=True)[1]
        assert len(counts) == support
        chi_squared = (counts - n / support).square().sum().item() / (n / support)
        freedom = support - 1
        assert abs(chi_squared - freedom) < 4.5 * (2 * freedom) ** 0.5, RULES[rule]


@pytest.fixture(scope="module")
def facts() -> dict[str, np.ndarray]:
    with np.load(FACTS) as file:
        return {name: file[name] for name in file.files}


def official(facts: dict[str, np.ndarray], name: str) -> torch.Tensor:
    return torch.from_numpy(facts[name].astype(np.int64))


@pytest.mark.parametrize("rule", range(len(RULES)))
def test_official_features_follow_our_rules(facts: dict[str, np.ndarray], rule: int) -> None:
    held = rules_that_hold(official(facts, f"raven_rule{rule}"), 8)
    assert held[:, rule].all()
    # A definition that accepts anything would pass the line above.
    assert (held.float().mean(0) < 0.2)[[r for r in range(len(RULES)) if r != rule]].all()


def test_official_counts_and_combinations(facts: dict[str, np.ndarray]) -> None:
    task = Sraven(SravenConfig())
    assert torch.equal(task.all_combinations, official(facts, "raven_latents_all"))
    counts = json.loads(str(facts["facts_json"]))
    assert counts == {"num_rules": len(RULES), "num_latents": len(task.all_combinations),
                      "in_dist": len(task.combinations("train")),
                      "out_dist": len(task.combinations("ood"))}


def test_official_split_is_disjoint_and_covers(facts: dict[str, np.ndarray]) -> None:
    every = list(combinations_with_replacement(range(8), 4))
    held_out = tuple(every[i] for i in facts["raven_out_dist_idx"])
    assert not set(facts["raven_out_dist_idx"]) & set(facts["raven_in_dist_idx"])
    task = Sraven(SravenConfig(held_out=held_out))
    known = [every[i] for i in sorted(facts["raven_in_dist_idx"])]
    assert [tuple(c) for c in task.combinations("train").tolist()] == known
    assert {rule for c in known for rule in c} == set(range(8))
    for split, name in (("train", "train"), ("ood", "ood"), ("test", "test_unpermuted")):
        drawn = {tuple(c) for c in facts[f"raven_{name}_latents"].tolist()}
        assert drawn <= {tuple(c) for c in task.combinations(split).tolist()}


@pytest.mark.parametrize("name", ["train", "ood", "seq", "test_unpermuted"])
def test_official_instances_follow_their_rules(facts: dict[str, np.ndarray], name: str) -> None:
    grid = official(facts, f"raven_{name}_instances")
    rules = official(facts, f"raven_{name}_latents")
    permutations = (torch.arange(4).repeat(len(grid), 3, 1) if name == "test_unpermuted"
                    else official(facts, f"raven_{name}_perms"))
    features = permute_features(grid, permutations.argsort(-1)).movedim(-1, 1)
    held = rules_that_hold(features, 8)
    assert held.gather(-1, rules[..., None]).all()
    by_response = rules_that_hold(aligned(grid, permutations).movedim(-1, 1), 8)
    assert by_response.gather(-1, rules.gather(1, permutations[:, -1])[..., None]).all()
    if name != "test_unpermuted":
        as_shown = rules_that_hold(grid.movedim(-1, 1), 8)
        assert as_shown.gather(-1, rules[..., None]).float().mean() < 0.5


def test_official_tokens_equal_ours(facts: dict[str, np.ndarray]) -> None:
    grid = official(facts, "raven_seq_instances")
    assert torch.equal(tokenize(grid, 8), torch.from_numpy(facts["raven_seq_x"]).float())
    assert torch.equal(grid[:, -1, -1], official(facts, "raven_seq_y"))
