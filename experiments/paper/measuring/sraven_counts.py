"""How many SRAVEN tasks and problem instances there are (paper, B.1 and Fig. A9).

With M features, K symbols, G columns and R = 8 rules:

    combinations   C(R + M - 1, M)   multisets of rules
    permutations   (M!)^(G-1)        orders of the other columns' features against the last one's
    tasks          combinations x permutations

Permuting all columns in the same way changes nothing but the names of the features, hence G - 1
and not G. The paper prints (M!)^(G-1) - M without saying why; that would leave no permutation at
all at M = 1, where there is exactly one. Both are given here.

Fig. A9B has no printed formula. Let g_r be the number of feature grids that obey rule r
(`feature_grids_per_rule`). Then

    instances        (M!)^(G-1) h_M(g)       sum over the tasks of prod_m g_{r_m}
    instances_shown  (M!)^(G-1) (sum_r g_r)^M

count *generating choices*; h_M is the sum of the products of all multisets of M of the g_r. The
first counts a problem once whatever the order of the response tokens, as B.1 counts tasks; the
second tells apart which response token has which rule, as the grids that a model is shown do.
Neither counts *distinct grids*, which are fewer than the second: several rules may produce the
same feature (all zeros are constant, sum and difference), and several permutations the same
panels. There is no closed form for them, and `distinct_instances` estimates their number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, factorial

import torch

from latentcode.experiments.paper.measuring.sraven_readings import (
    candidate_features,
    count_alignments,
    instances_at_once,
    partner_tokens,
)
from latentcode.metrics import Metric, mean_metric
from latentcode.tasks.sraven.rules import (
    RULES,
    feature_grids_per_rule,
    random_permutations,
    rules_that_hold,
    sample_features,
)
from latentcode.tasks.sraven.task import permute_features


@dataclass(frozen=True)
class SravenCounts:
    """The numbers of this module's docstring for one M, K and G, as exact integers."""

    combinations: int
    """C(M + 7, M) multisets of rules."""
    permutations: int
    """(M!)^(G-1), the permutations of the columns against each other."""
    permutations_printed: int
    """(M!)^(G-1) - M, as the paper prints it."""
    tasks: int
    """combinations x permutations."""
    tasks_printed: int
    """combinations x permutations_printed."""
    instances: int
    """Generating choices, whatever the order of the response tokens."""
    instances_shown: int
    """Generating choices, telling apart the order of the response tokens."""


def count_sraven(n_features: int, n_values: int = 8, grid_size: int = 3) -> SravenCounts:
    """Count combinations, permutations, tasks and instances of M, K and G."""
    sizes = feature_grids_per_rule(n_values, grid_size)
    combinations = comb(len(RULES) + n_features - 1, n_features)
    permutations = factorial(n_features) ** (grid_size - 1)
    products = [1] + [0] * n_features  # h_0 .. h_M of the rules seen so far
    for size in sizes:
        for m in range(1, n_features + 1):
            products[m] += size * products[m - 1]
    return SravenCounts(
        combinations=combinations,
        permutations=permutations,
        permutations_printed=permutations - n_features,
        tasks=combinations * permutations,
        tasks_printed=combinations * (permutations - n_features),
        instances=permutations * products[n_features],
        instances_shown=permutations * sum(sizes) ** n_features)


def distinct_instances(
    n_features: int, n_values: int, grid_size: int, n: int, generator: torch.Generator
) -> Metric:
    """Estimate the number of distinct permuted grids without bias, from n drawn ones.

    The sum over generating choices of 1 / (choices that give the same grid) counts every grid
    once. A choice is a tuple of M features that obey some rule and a relative permutation; a rule
    is drawn in proportion to its number of feature grids, which draws a feature in proportion to
    the number of rules that it obeys, and the estimate divides by that.
    """
    sizes = feature_grids_per_rule(n_values, grid_size)
    device = generator.device
    partners = partner_tokens(n_features, grid_size).to(device)
    odds = torch.tensor([s / sum(sizes) for s in sizes], dtype=torch.float64, device=device)
    values = []
    block = instances_at_once(n_features, grid_size)
    for start in range(0, n, block):
        m = min(block, n - start)
        rules = torch.multinomial(odds, m * n_features, replacement=True, generator=generator)
        features = sample_features(rules.view(m, n_features), n_values, grid_size, generator)
        obeyed = rules_that_hold(features, n_values).sum(-1).double().prod(1)
        permutations = random_permutations((m, grid_size), n_features, generator)
        grid = permute_features(features.movedim(1, -1), permutations)
        allowed = rules_that_hold(candidate_features(grid), n_values).any(-1)
        values.append(1.0 / (obeyed * count_alignments(allowed, partners)))
    estimate = mean_metric(torch.cat(values).cpu().numpy())
    choices = float(sum(sizes) ** n_features * factorial(n_features) ** (grid_size - 1))
    return Metric(estimate.mean * choices, estimate.se * choices, n)
