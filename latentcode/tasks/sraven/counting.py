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
panels. Distinct grids number |U|^M without permutations, U being the union of the rules' feature
grids; with permutations there is no closed form, and `distinct_instances` estimates them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import comb, factorial

import torch

from latentcode.errors import check
from latentcode.metrics import Metric, mean_metric
from latentcode.tasks.sraven.hypotheses import (
    candidate_features,
    count_alignments,
    instances_at_once,
    partner_tokens,
)
from latentcode.tasks.sraven.rules import (
    DISTRIBUTE,
    RULES,
    feature_grids_per_rule,
    random_permutations,
    rule_holds,
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
    instances_printed: int
    """The same with permutations_printed."""
    instances_shown: int
    """Generating choices, telling apart the order of the response tokens."""
    distinct_unpermuted: int
    """Distinct grids without permutations; a lower bound of those with permutations."""


def count_sraven(n_features: int, n_values: int = 8, grid_size: int = 3) -> SravenCounts:
    """How many combinations, permutations, tasks and instances have M, K and G?

    Raises `ConfigError` for sizes without instances, or with too many rows K^G to go through.
    """
    check(n_features >= 1, f"n_features is {n_features}; expected at least 1")
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
        instances_printed=(permutations - n_features) * products[n_features],
        instances_shown=permutations * sum(sizes) ** n_features,
        distinct_unpermuted=distinct_feature_grids(n_values, grid_size) ** n_features)


def distinct_feature_grids(n_values: int, grid_size: int) -> int:
    """|U| = |union over the rules of the feature grids that obey them|, by inclusion-exclusion.

    All rules but distribute-three ask something of each row alone, so that grids that obey a
    set Q of them number n_Q^G, n_Q being the rows that obey all of Q; distribute-three does the
    same once its set of symbols is fixed. Needs one pass over the K^G rows.
    """
    check(2 <= grid_size <= n_values, f"grid_size is {grid_size}; expected 2 to n_values = "
          f"{n_values}")
    check(n_values**grid_size <= 10**7, f"n_values is {n_values}; expected at most "
          f"{int(10 ** (7 / grid_size))} for grid_size = {grid_size} (a pass over K^G rows)")
    rows = torch.cartesian_prod(*[torch.arange(n_values)] * grid_size)
    # Bit r of `obeyed` says whether the row obeys rule r < DISTRIBUTE.
    obeyed = torch.zeros(len(rows), dtype=torch.int64)
    for rule in range(DISTRIBUTE):
        obeyed |= rule_holds(rule, rows[:, None], n_values).long() << rule
    ordered = rows.sort(-1).values
    different = (ordered.diff(dim=-1) != 0).all(-1)
    by_symbols: dict[tuple[int, ...], Counter[int]] = {}
    for symbols, bits in zip(ordered[different].tolist(), obeyed[different].tolist(), strict=True):
        by_symbols.setdefault(tuple(symbols), Counter())[bits] += 1
    total: int = len(rows) ** grid_size - _grids_without_rule(Counter(obeyed.tolist()), grid_size)
    alike = Counter(frozenset(counter.items()) for counter in by_symbols.values())
    return total + sum(n * _grids_without_rule(Counter(dict(counter)), grid_size)
                       for counter, n in alike.items())


def _grids_without_rule(rows: Counter[int], grid_size: int) -> int:
    """sum_Q (-1)^|Q| n_Q^G: grids of G of these rows that obey none of the first seven rules.

    rows maps the bits of the rules that a row obeys to the number of such rows.
    """
    total: int = 0
    for chosen in range(2**DISTRIBUTE):
        n_rows = sum(n for bits, n in rows.items() if bits & chosen == chosen)
        sign = -1 if chosen.bit_count() % 2 else 1
        total += sign * n_rows**grid_size
    return total


def distinct_instances(
    n_features: int, n_values: int, grid_size: int, n: int, generator: torch.Generator
) -> Metric:
    """How many distinct permuted grids are there? An unbiased estimate from n drawn ones.

    The sum over generating choices of 1 / (choices that give the same grid) counts every grid
    once. A choice is a tuple of M features of U and a relative permutation; a rule is drawn in
    proportion to its number of feature grids, which draws a feature in proportion to the number
    of rules that it obeys, and the estimate divides by that.
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
