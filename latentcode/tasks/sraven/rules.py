"""The eight rules of SRAVEN (paper, B.3): how a feature runs over the grid.

A feature grid holds the symbols 0..K-1 of one feature in the G x G panels. Every rule is drawn
and checked row by row, modulo K:

    constant          x_c = x_0
    +1, +2, -1, -2    x_c = x_0 + c * step
    sum               x_last = x_0 + x_1 + ...
    difference        x_last = x_0 - x_1 - ...
    distribute-three  every row is an arrangement of the same G different symbols

The paper has G = 3; on other grids the rules keep their names and run over G columns.
"""

from __future__ import annotations

from math import comb, factorial

import torch
from torch import Tensor

RULES: tuple[str, ...] = (
    "constant", "+1", "+2", "-1", "-2", "sum", "difference", "distribute-three")
"""Short names; the index of a rule is its place here, as in the paper and the official code."""

STEPS: tuple[int, ...] = (0, 1, 2, -1, -2)
"""Increment per column of the first five rules; `constant` is a progression by 0."""

SUM, DIFFERENCE, DISTRIBUTE = 5, 6, 7


def random_permutations(
    shape: tuple[int, ...], size: int, generator: torch.Generator
) -> Tensor:
    """Return independent uniform permutations of `size` things, int64 [*shape, size]."""
    # In float32 two keys of a row collide about once per million rows, which would bias ties.
    keys = torch.rand(*shape, size, dtype=torch.float64, generator=generator,
                      device=generator.device)
    return keys.argsort(dim=-1)


def sample_features(
    rules: Tensor, n_values: int, grid_size: int, generator: torch.Generator
) -> Tensor:
    """Draw a feature grid for every rule index: int64 [...] -> [..., G, G].

    Starts and operands are uniform and independent per row. The G symbols of distribute-three
    are a uniform subset shared by the rows, in an independent uniform order per row.
    """
    shape, device = tuple(rules.shape), rules.device

    def uniform(columns: int) -> Tensor:
        return torch.randint(n_values, (*shape, grid_size, columns), generator=generator,
                             device=device)

    start, operands = uniform(1), uniform(grid_size - 1)
    symbols = random_permutations(shape, n_values, generator)[..., None, :grid_size]
    orders = random_permutations((*shape, grid_size), grid_size, generator)
    columns = torch.arange(grid_size, device=device)
    drawn = [(start + step * columns) % n_values for step in STEPS]
    drawn += [torch.cat((operands, result[..., None]), -1)
              for result in sum_and_difference(operands, n_values)]
    drawn.append(symbols.expand(*shape, grid_size, grid_size).gather(-1, orders))
    grids = drawn[0]
    for index in range(1, len(RULES)):
        grids = torch.where((rules == index)[..., None, None], drawn[index], grids)
    return grids


def sum_and_difference(operands: Tensor, n_values: int) -> tuple[Tensor, Tensor]:
    """x_0 + x_1 + ... and x_0 - x_1 - ... modulo K, both [...], of operands int64 [..., C]."""
    total = operands.sum(-1)
    return total % n_values, (2 * operands[..., 0] - total) % n_values


def rule_holds(rule: int, grids: Tensor, n_values: int) -> Tensor:
    """Return whether a rule holds in every row of feature grids: [..., G, G] -> bool [...]."""
    if rule < len(STEPS):
        return ((grids.diff(dim=-1) - STEPS[rule]) % n_values == 0).all(-1).all(-1)
    if rule == DISTRIBUTE:
        ordered = grids.sort(dim=-1).values
        different = (ordered.diff(dim=-1) != 0).all(-1).all(-1)
        return different & (ordered == ordered[..., :1, :]).all(-1).all(-1)
    expected = grids[..., :-1].sum(-1)
    if rule == DIFFERENCE:
        expected = 2 * grids[..., 0] - expected
    return ((expected - grids[..., -1]) % n_values == 0).all(-1)


def rules_that_hold(grids: Tensor, n_values: int) -> Tensor:
    """Return which rules hold in feature grids: [..., G, G] -> bool [..., 8]."""
    return torch.stack([rule_holds(r, grids, n_values) for r in range(len(RULES))], -1)


def complete(grids: Tensor, n_values: int) -> tuple[Tensor, Tensor]:
    """Which rules fit all panels but the last, and which symbol does each put there?

    grids [..., G, G], whose last symbol is not looked at -> (fits bool [..., 8], answers int64
    [..., 8]). The context fixes the answer of every rule; where a rule does not fit, its answer
    means nothing.
    """
    context = grids[..., -1, :-1]
    answers = [(context[..., -1] + step) % n_values for step in STEPS]
    answers += sum_and_difference(context, n_values)
    # The symbol that the last row lacks, if its others are different symbols of the first row.
    answers.append(grids[..., 0, :].sum(-1) - context.sum(-1))
    fits = []
    for rule, answer in enumerate(answers):
        last_row = torch.cat((context, answer[..., None]), -1)
        completed = torch.cat((grids[..., :-1, :], last_row[..., None, :]), -2)
        fits.append(rule_holds(rule, completed, n_values))
    return torch.stack(fits, -1), torch.stack(answers, -1)


def feature_grids_per_rule(n_values: int, grid_size: int) -> tuple[int, ...]:
    """K^G (constant, progressions), K^(G (G-1)) (sum, difference), C(K, G) (G!)^G (distribute).

    How many feature grids obey each rule, 8 numbers. All of them are equally likely under the
    rule, so their inverses are the likelihoods.
    """
    progression = n_values**grid_size
    arithmetic = n_values ** (grid_size * (grid_size - 1))
    distribute = comb(n_values, grid_size) * factorial(grid_size) ** grid_size
    return (progression,) * len(STEPS) + (arithmetic, arithmetic, distribute)
