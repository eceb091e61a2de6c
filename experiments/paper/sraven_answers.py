"""How far the context determines the answer of a SRAVEN instance, in three senses.

1. `AnswerPosterior.ambiguous`: the paper's words (B.2). Another set of rules and permutations
   fits all context panels and prescribes a different answer.
2. `official_ambiguous`: what the paper's Table A2 counts. Under one permutation, *every* feature
   has a fitting rule whose symbol is wrong.
3. `answer_posterior`: the probability of every answer given the context, under the generative
   process, and with it the best possible solver (`AnswerPosterior.best`), whose accuracy is the
   ceiling against which SRAVEN accuracies are read.

All look at the readings of a grid: which tokens are one feature, and which rule governs it. The
order of the features has no meaning, so a feature is named by its response token j, and a reading
assigns to every j one partner token in each of the other G-1 columns, every token being used once
(a relative permutation of the columns, A = (M!)^(G-1) of them), and a rule. A tuple of partners is
numbered p = sum_c t_c M^c over the columns c < G-1; P = M^(G-1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

import pandas as pd
import torch
from torch import Tensor

from latentcode.config import SravenConfig
from latentcode.tasks.base import Batch
from latentcode.tasks.sraven.task import DISTRIBUTE, Sraven, complete, feature_grids_per_rule

CHUNK = 2_000
"""Instances that are drawn with one seed."""


def alignments(n_features: int, grid_size: int) -> Tensor:
    """Return the tuple of partners of each response token, int64 [A, M]; first unpermuted."""
    orders = torch.tensor(list(permutations(range(n_features))))
    columns = torch.tensor(list(product(range(len(orders)), repeat=grid_size - 1)))  # [A, G-1]
    powers = n_features ** torch.arange(grid_size - 1)
    return (orders[columns] * powers[:, None]).sum(1)


def candidate_features(grid: Tensor) -> Tensor:
    """Return the feature grid that each response token has with each tuple of partners.

    grid [B, G, G, M] -> [B, M, P, G, G].
    """
    batch, size, _, n_features = grid.shape
    number = torch.arange(n_features ** (size - 1), device=grid.device)
    columns = [grid[:, :, c, number // n_features**c % n_features] for c in range(size - 1)]
    context = torch.stack(columns, -1).movedim(1, 2)[:, None]  # [B, 1, P, G, G-1]
    response = grid[:, :, -1].transpose(1, 2)[:, :, None, :, None]  # [B, M, 1, G, 1]
    shape = (batch, n_features, len(number), size)
    return torch.cat((context.expand(*shape, size - 1), response.expand(*shape, 1)), -1)


def blocks(grid: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the number of the first instance and the grids [B, G, G, M] of blocks whose candidates
    stay at about 100 MB."""
    _, grid_size, _, n_features = grid.shape
    size = max(1, 2**20 // (8 * n_features**grid_size))
    for start in range(0, len(grid), size):
        yield start, grid[start:start + size]


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
    config, device = task.config, batch.targets.device
    sizes = feature_grids_per_rule(config.n_values, config.grid_size)
    # Relative weights: only ratios matter, and large K would underflow.
    weights = torch.tensor([min(sizes) / s for s in sizes], dtype=torch.float64, device=device)
    aligned = alignments(config.n_features, config.grid_size).to(device)
    aligned = aligned if config.permuted else aligned[:1]
    rows, weight = [], []
    for start, grid in blocks(batch.info["grid"]):
        fits, prescribed = complete(candidate_features(grid), config.n_values)  # [B, M, P, R]
        tokens = torch.arange(config.n_features, device=device)
        instance, chosen = fits.any(-1)[:, tokens, aligned].all(-1).nonzero(as_tuple=True)
        tuples = aligned[chosen]  # [reading, M]
        rules, answers = (tuples.new_empty((len(tuples), 0)) for _ in range(2))
        likelihood = torch.ones(len(tuples), dtype=torch.float64, device=device)
        for token in range(config.n_features):
            # Every reading continues with every rule that fits the token.
            reading, rule = fits[instance, token, tuples[:, token]].nonzero(as_tuple=True)
            instance, tuples, rules = instance[reading], tuples[reading], rules[reading]
            answer = prescribed[instance, token, tuples[:, token], rule]
            answers = torch.cat((answers[reading], answer[:, None]), 1)
            # A multiset of rules weighs the same whatever its number of orders, M! / prod n_k!.
            repeated = (rules == rule[:, None]).sum(1) + 1
            likelihood = likelihood[reading] * weights[rule] * repeated
            rules = torch.cat((rules, rule[:, None]), 1)
        rows.append(torch.cat((instance[:, None] + start, answers), 1))
        weight.append(likelihood)
    distinct, index = torch.unique(torch.cat(rows), dim=0, return_inverse=True)
    summed = weights.new_zeros(len(distinct)).index_add_(0, index, torch.cat(weight))
    instance = distinct[:, 0]
    total = weights.new_zeros(len(batch)).index_add_(0, instance, summed)
    return AnswerPosterior(instance, distinct[:, 1:], summed / total[instance], len(batch))


def official_ambiguous(grid: Tensor, n_values: int) -> Tensor:
    """Whether under some permutation every feature has a fitting rule with a wrong symbol.

    grid int64 [B, G, G, M] as shown, answer included -> bool [B]: what the official checker
    counts for the paper's Table A2. It differs from `AnswerPosterior.ambiguous` in that all M
    features must go wrong at once, and in its looser distribute-three: the full rows must hold the
    same symbols, which may repeat, and the symbols of the last row must occur among them, each
    maybe twice; the answer is the smallest of the symbols that the last row matches least often.
    It searches all permutations whether or not the instance was permuted.
    """
    _, grid_size, _, n_features = grid.shape
    aligned = alignments(n_features, grid_size).to(grid.device)
    tokens = torch.arange(n_features, device=grid.device)
    ambiguous = []
    for _, block in blocks(grid):
        features = candidate_features(block)
        fits, answers = complete(features, n_values)
        full_rows = features[..., :-1, :].sort(-1).values
        symbols = full_rows[..., 0, :]
        matches = features[..., -1, :-1, None] == symbols[..., None, :]  # [..., G-1, G]
        least = matches.sum(-2).argmin(-1, keepdim=True)
        fits[..., DISTRIBUTE] = ((full_rows == full_rows[..., :1, :]).all(-1).all(-1)
                                 & matches.any(-1).all(-1))
        answers[..., DISTRIBUTE] = symbols.gather(-1, least)[..., 0]
        wrong = (fits & (answers != features[..., -1, -1, None])).any(-1)  # [B, M, P]
        ambiguous.append(wrong[:, tokens, aligned].all(-1).any(-1))
    return torch.cat(ambiguous)


def fresh_instances(n_features: int, n_values: int, permuted: bool, n: int) -> pd.DataFrame:
    """Return, for n instances of all combinations of rules, what determines their answers.

    The columns are `official`, the official checker counts it as ambiguous (Table A2); `ambiguous`,
    other rules and permutations fit the context and give another answer (B.2); and `solved`, the
    Bayes-optimal solver, which knows the rules, gets all features right.
    """
    task = Sraven(SravenConfig(n_features=n_features, n_values=n_values, permuted=permuted,
                               ood_fraction=0.0))
    parts = []
    for seed, start in enumerate(range(0, n, CHUNK)):
        batch = task.sample("test", min(CHUNK, n - start), torch.Generator().manual_seed(seed))
        posterior = answer_posterior(task, batch)
        parts.append(pd.DataFrame({
            "official": official_ambiguous(batch.info["grid"], n_values).numpy(),
            "ambiguous": posterior.ambiguous(batch.targets).numpy(),
            "solved": (posterior.best()[0] == batch.targets).all(1).numpy()}))
    return pd.concat(parts, ignore_index=True)
