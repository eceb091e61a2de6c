"""Counts of combinations, permutations and instances, against brute force."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations, product
from math import prod

import torch
from small_sraven import rules_that_hold

from latentcode.experiments.paper.reproductions.definitions import count_sraven
from latentcode.tasks.sraven.task import feature_grids_per_rule

Grid = tuple[tuple[int, ...], ...]


def all_features(n_values: int, grid_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every feature grid [N, G, G] and which rules it obeys [N, 8]."""
    symbols = torch.cartesian_prod(*[torch.arange(n_values)] * grid_size**2)
    grids = symbols.view(-1, grid_size, grid_size)
    return grids, rules_that_hold(grids, n_values)


def columns_of(grids: torch.Tensor) -> list[Grid]:
    """Feature grids as tuples of columns."""
    return [tuple(map(tuple, grid)) for grid in grids.transpose(1, 2).tolist()]


def test_generating_choices_by_brute_force() -> None:
    for n_values, n_features in ((3, 1), (2, 2), (3, 2), (2, 3)):
        grids, obeyed = all_features(n_values, 2)
        columns = columns_of(grids)
        by_rule = [[c for c, holds in zip(columns, obeyed[:, r].tolist(), strict=True) if holds]
                   for r in range(8)]
        orders = list(permutations(range(n_features)))
        counts = count_sraven(n_features, n_values, 2)
        combinations = list(combinations_with_replacement(range(8), n_features))
        assert counts["combinations"] == len(combinations)
        assert counts["permutations"] == len(orders)  # (M!)^(G-1) for G = 2
        assert counts["tasks"] == len(combinations) * len(orders)
        assert counts["instances"] == len(orders) * sum(
            prod(len(by_rule[r]) for r in c) for c in combinations)
        assert counts["instances_shown"] == len(orders) * sum(
            prod(len(by_rule[r]) for r in c) for c in product(range(8), repeat=n_features))


def test_permutations_of_columns_against_each_other() -> None:
    # Grids of M different tokens per column, up to the same reordering of all columns.
    for n_features, grid_size in ((1, 3), (2, 3), (3, 3), (2, 4)):
        shown = product(permutations(range(n_features)), repeat=grid_size)
        distinct = {frozenset(zip(*columns, strict=True)) for columns in shown}
        assert count_sraven(n_features, 8, grid_size)["permutations"] == len(distinct)


def test_the_papers_setting() -> None:
    counts = count_sraven(4, 8, 3)
    assert counts["combinations"] == 330
    assert (counts["permutations"], counts["permutations_printed"]) == (576, 572)
    assert (counts["tasks"], counts["tasks_printed"]) == (330 * 576, 330 * 572)
    one = count_sraven(1, 8, 3)
    assert (one["permutations"], one["permutations_printed"]) == (1, 0)
    assert one["instances"] == one["instances_shown"] == sum(feature_grids_per_rule(8, 3))
