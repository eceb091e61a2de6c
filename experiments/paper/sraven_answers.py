"""How far the context determines the answer of a SRAVEN instance, in three senses.

1. `AnswerPosterior.ambiguous`: the paper's words (B.2). Another set of rules and permutations
   fits all context panels and prescribes a different answer.
2. `official_ambiguous`: what the paper's Table A2 counts. Under one permutation, *every* feature
   has a fitting rule whose symbol is wrong.
3. `answer_posterior`: the probability of every answer given the context, under the generative
   process, and with it the best possible solver (`AnswerPosterior.best`), whose accuracy is the
   ceiling against which SRAVEN accuracies are read.

All sum over the readings of a grid: which tokens are one feature, and which rule governs it. The
order of the features has no meaning, so a feature is named by its response token j, and a reading
assigns to every j one partner token in each of the other G-1 columns, every token being used once
(a relative permutation of the columns, (M!)^(G-1) of them), and a rule. A tuple of partners is
numbered p = sum_c t_c M^c over the columns c < G-1; P = M^(G-1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import factorial

import pandas as pd
import torch
from torch import Tensor

from latentcode.config import SravenConfig
from latentcode.tasks.base import Batch
from latentcode.tasks.sraven.task import DISTRIBUTE, Sraven, complete, feature_grids_per_rule

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


@dataclass(frozen=True)
class AnswerPosterior:
    """P(answer | context panels): all N answers that are possible for a batch of B instances.

    Attributes:
        instance: int64 [N], rising; answers of one instance in rising order.
        answers: int64 [N, M], symbols of the response tokens.
        probability: float64 [N], sums to one over each instance.
        n_instances: B.
    """

    instance: Tensor
    answers: Tensor
    probability: Tensor
    n_instances: int

    def best(self) -> tuple[Tensor, Tensor]:
        """Return argmax P(answer) int64 [B, M] and its probability float64 [B].

        Of equally probable answers the first is returned. The mean of the probability is the
        accuracy of this solver, with less noise than counting.
        """
        highest = self.probability.new_zeros(self.n_instances).scatter_reduce(
            0, self.instance, self.probability, "amax")
        # Equal probabilities may differ in the last digits, depending on the order of summing.
        is_best = self.probability >= highest[self.instance] * (1 - 1e-12)
        rank = torch.arange(len(self.instance), device=self.instance.device)
        first = self.instance.new_full((self.n_instances,), len(rank)).scatter_reduce(
            0, self.instance[is_best], rank[is_best], "amin")
        return self.answers[first], highest

    def ambiguous(self, targets: Tensor) -> Tensor:
        """Whether another set of rules and permutations fits the context but gives another answer.

        The definition in the paper's B.2, bool [B]; any multiset of rules counts.
        """
        other = (self.answers != targets[self.instance]).any(1)
        return torch.bincount(self.instance[other], minlength=self.n_instances) > 0


def answer_posterior(task: Sraven, batch: Batch) -> AnswerPosterior:
    """P(y | context) = sum over readings with answer y of P(combination) P(order) P(context).

    A reading is a relative permutation of the columns (one reading only where the task does not
    permute) and a rule per response token. Its prior is uniform over all combinations, over the
    orders of the rules and over permutations; the likelihood of a feature's context under a rule
    that fits is one over the number of feature grids of that rule, and the answer then follows.
    Exact, in float64.
    """
    config = task.config
    device = batch.targets.device
    sizes = feature_grids_per_rule(config.n_values, config.grid_size)
    # Relative weights: only ratios matter, and large K would underflow.
    weights = torch.tensor([min(sizes) / s for s in sizes], dtype=torch.float64, device=device)
    partners = partner_tokens(config.n_features, config.grid_size).to(device)
    tokens = torch.arange(config.n_features, device=device)
    unpermuted = (partners[None] == tokens[:, None, None]).all(-1)  # [M, P]
    blocks = []
    for start, grid in _blocks(batch.info["grid"]):
        fits, answers = complete(candidate_features(grid), config.n_values)
        if not config.permuted:
            fits &= unpermuted[..., None]
        readings = sum_readings(fits, answers, weights, partners)
        rows = torch.cat((readings.instance[:, None] + start, readings.answers), 1)
        blocks.append((rows, readings.weight))
    rows, index = torch.unique(torch.cat([r for r, _ in blocks]), dim=0, return_inverse=True)
    weight = torch.cat([w for _, w in blocks])
    weight = weight.new_zeros(len(rows)).index_add_(0, index, weight)
    instance = rows[:, 0]
    total = weight.new_zeros(len(batch)).index_add_(0, instance, weight)
    return AnswerPosterior(instance, rows[:, 1:], weight / total[instance], len(batch))


def official_ambiguous(grid: Tensor, n_values: int) -> Tensor:
    """Whether under some permutation every feature has a fitting rule with a wrong symbol.

    grid int64 [B, G, G, M] as shown, answer included -> bool [B]: what the official checker
    counts for the paper's Table A2. It differs from `AnswerPosterior.ambiguous` in that all M
    features must go wrong at once, and in its looser distribute-three, see `_official_distribute`.
    It searches all permutations whether or not the instance was permuted.
    """
    _, grid_size, _, n_features = grid.shape
    partners = partner_tokens(n_features, grid_size).to(grid.device)
    blocks = []
    for _, block in _blocks(grid):
        features = candidate_features(block)
        fits, answers = complete(features, n_values)
        fits[..., DISTRIBUTE], answers[..., DISTRIBUTE] = _official_distribute(features)
        wrong = (fits & (answers != features[..., -1, -1, None])).any(-1)
        blocks.append(count_alignments(wrong, partners) > 0)
    return torch.cat(blocks)


def _official_distribute(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the official checker lets distribute-three fit, and its answer, both [...].

    The full rows must hold the same symbols, which may repeat, and the symbols of the last row
    must occur among them, each maybe twice. The answer is the smallest of the symbols that the
    last row matches least often. features [..., G, G].
    """
    rows = features[..., :-1, :].sort(-1).values
    same = (rows == rows[..., :1, :]).all(-1).all(-1)
    symbols = rows[..., 0, :]
    matches = features[..., -1, :-1, None] == symbols[..., None, :]  # [..., G-1, G]
    least = matches.sum(-2).argmin(-1, keepdim=True)
    return same & matches.any(-1).all(-1), symbols.gather(-1, least)[..., 0]


def _blocks(grid: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of the first instance and the grids of blocks that fit in memory."""
    size = instances_at_once(n_features=grid.shape[-1], grid_size=grid.shape[1])
    for start in range(0, len(grid), size):
        yield start, grid[start:start + size]


def fresh_instances(
    n_features: int, n_values: int, permuted: bool, n: int, seed: int
) -> pd.DataFrame:
    """Return, for n instances of all combinations of rules, what determines their answers.

    official   the official checker counts it as ambiguous (Table A2)
    ambiguous  other rules and permutations fit the context and give another answer (B.2)
    solved     the Bayes-optimal solver, which knows the rules, gets all features right
    """
    task = Sraven(SravenConfig(n_features=n_features, n_values=n_values, permuted=permuted,
                               ood_fraction=0.0))
    batch = task.sample("test", n, torch.Generator().manual_seed(seed))
    posterior = answer_posterior(task, batch)
    return pd.DataFrame({
        "official": official_ambiguous(batch.info["grid"], n_values).numpy(),
        "ambiguous": posterior.ambiguous(batch.targets).numpy(),
        "solved": (posterior.best()[0] == batch.targets).all(1).numpy()})
