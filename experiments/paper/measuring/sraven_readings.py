"""Every reading of a grid: which tokens are one feature, and which rule governs it.

The order of the features has no meaning, so a feature is named by its response token j, and a
reading assigns to every j one partner token in each of the other G-1 columns, every token being
used once (a relative permutation of the columns, (M!)^(G-1) of them), and a rule.

A tuple of partners is numbered p = sum_c t_c M^c over the columns c < G-1; P = M^(G-1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import torch
from torch import Tensor

ROWS_AT_ONCE = 2**22
"""Most rows of one join, which bounds its memory at about a gigabyte."""

_INSTANCE, _RULES, _USED = range(3)
"""Columns of a partial reading; the used tokens and then the answers follow from `_USED` on."""


def partner_tokens(n_features: int, grid_size: int) -> Tensor:
    """Return the partner tokens of every tuple, int64 [P, G-1]."""
    index = torch.arange(n_features ** (grid_size - 1))
    return torch.stack([index // n_features**c % n_features for c in range(grid_size - 1)], -1)


def candidate_features(grid: Tensor) -> Tensor:
    """Return the feature grid that each response token has with each tuple of partners.

    grid [B, G, G, M] -> [B, M, P, G, G].
    """
    batch, size, _, n_features = grid.shape
    partners = partner_tokens(n_features, size).to(grid.device)
    columns = [grid[:, :, c, partners[:, c]] for c in range(size - 1)]
    context = torch.stack(columns, -1).movedim(1, 2)[:, None]  # [B, 1, P, G, G-1]
    response = grid[:, :, -1].transpose(1, 2)[:, :, None, :, None]  # [B, M, 1, G, 1]
    shape = (batch, n_features, len(partners), size)
    return torch.cat((context.expand(*shape, size - 1), response.expand(*shape, 1)), -1)


def instances_at_once(n_features: int, grid_size: int) -> int:
    """Return how many instances fit in a block, so that the candidates stay at about 100 MB."""
    return int(max(1, 2**20 // (8 * n_features**grid_size)))


@dataclass(frozen=True)
class Readings:
    """Sums over readings that agree in instance, multiset of rules and answers.

    Attributes:
        instance: int64 [N].
        answers: int64 [N, M], the symbol of each response token.
        weight: float64 [N], the sum over the readings of prod_j weight of the rule of j.
    """

    instance: Tensor
    answers: Tensor
    weight: Tensor


def sum_readings(
    fits: Tensor, answers: Tensor, rule_weights: Tensor, partners: Tensor
) -> Readings:
    """Sum over relative permutations and rule tuples r of prod_j fits_j(r_j) weight(r_j).

    A tuple of rules weighs prod_k n_k! more (n_k the number of times that rule k occurs), so that
    all multisets of rules weigh the same whatever their number of orders. The sum runs token by
    token; partial readings that cannot differ in what follows are merged at once, so that the
    (M!)^(G-1) R^M readings are never listed.

    Args:
        fits: Whether rule r fits response token j with partners p, bool [B, M, P, R].
        answers: The symbol that the rule then prescribes, int64 [B, M, P, R].
        rule_weights: float64 [R].
        partners: The tokens of every tuple, as `partner_tokens` numbers them, int64 [P, G-1].

    Returns:
        The readings, sorted by instance.
    """
    device, (n, n_features) = fits.device, fits.shape[:2]
    taken = (1 << partners).to(device)
    used = slice(_USED, _USED + taken.shape[1])
    # Used tokens are bits, one number per column.
    state = torch.zeros(n, used.stop, dtype=torch.int64, device=device)
    state[:, _INSTANCE] = torch.arange(n, device=device)
    weight = torch.ones(n, dtype=torch.float64, device=device)
    for token in range(n_features):
        instance, option_partners, option_rule = fits[:, token].nonzero(as_tuple=True)
        option_answer = answers[instance, token, option_partners, option_rule]
        option_taken = taken[option_partners]
        options = torch.bincount(instance, minlength=n)
        first_option = options.cumsum(0) - options
        grown = []
        at_once = max(1, ROWS_AT_ONCE // max(1, int(options.max())))
        for part, part_weight in zip(torch.split(state, at_once), torch.split(weight, at_once),
                                     strict=True):
            # Every partial reading meets every option of its instance.
            repeats = options[part[:, _INSTANCE]]
            source = torch.repeat_interleave(repeats)
            option = torch.arange(len(source), device=device) + (
                first_option[part[:, _INSTANCE]] - repeats.cumsum(0) + repeats)[source]
            free = ((part[source, used] & option_taken[option]) == 0).all(1)
            source, option = source[free], option[free]
            rule = option_rule[option]
            rows = torch.cat((part[source], option_answer[option, None]), 1)
            rows[:, used] |= option_taken[option]
            digit = (n_features + 1) ** rule
            repeated = rows[:, _RULES] // digit % (n_features + 1) + 1
            rows[:, _RULES] += digit
            grown.append(_merge(rows, part_weight[source] * rule_weights[rule] * repeated))
        state, weight = _merge(torch.cat([rows for rows, _ in grown]),
                               torch.cat([w for _, w in grown]))
    return Readings(state[:, _INSTANCE], state[:, used.stop:], weight)


def _merge(rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows in lexicographic order, and the summed weight of each."""
    distinct, inverse = torch.unique(rows, dim=0, return_inverse=True)
    return distinct, weight.new_zeros(len(distinct)).index_add_(0, inverse, weight)


def count_alignments(allowed: Tensor, partners: Tensor) -> Tensor:
    """Return in how many relative permutations every response token has an allowed tuple.

    allowed bool [B, M, P], partners int64 [P, G-1] -> float64 [B].
    """
    weight = torch.ones(1, dtype=torch.float64, device=allowed.device)
    no_answers = torch.zeros_like(allowed[..., None], dtype=torch.int64)
    readings = sum_readings(allowed[..., None], no_answers, weight, partners)
    # Of the one rule there is, every reading has M, which weighs M!.
    return weight.new_zeros(len(allowed)).index_add_(
        0, readings.instance, readings.weight / factorial(allowed.shape[1]))
