"""How far the context determines the answer of a SRAVEN instance, in three senses.

1. `ambiguous`: the paper's words (B.2). Another set of rules and permutations fits all context
   panels and prescribes a different answer.
2. `official_ambiguous`: what the paper's Table A2 counts. Under one permutation, *every* feature
   has a fitting rule whose symbol is wrong.
3. `answer_posterior`: the probability of every answer given the context, under the generative
   process, and with it the best possible solver (`bayes_scores`), whose accuracy is the ceiling
   against which SRAVEN accuracies are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from latentcode.experiments.paper.measuring.sraven_readings import (
    candidate_features,
    count_alignments,
    instances_at_once,
    partner_tokens,
    sum_readings,
)
from latentcode.tasks.batch import Batch
from latentcode.tasks.sraven.rules import DISTRIBUTE, complete, feature_grids_per_rule
from latentcode.tasks.sraven.task import Sraven


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

    def marginals(self, n_values: int) -> Tensor:
        """Return P(symbol of response token j), float64 [B, M, K]."""
        symbols = torch.arange(n_values, device=self.answers.device)
        equal = self.answers[..., None] == symbols
        total = self.probability.new_zeros(self.n_instances, *equal.shape[1:])
        return total.index_add_(0, self.instance, self.probability[:, None, None] * equal)


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


def bayes_scores(task: Sraven, batch: Batch) -> dict[str, Tensor]:
    """Scores of the best possible solver, which knows the rules, as `Sraven.measures` [B].

    `accuracy` is 1 where the most probable joint answer is right, `feature_accuracy` the share
    of tokens whose most probable symbol is right, `loss` the cross-entropy of the true symbols
    under their posterior marginals.
    """
    posterior = answer_posterior(task, batch)
    marginals = posterior.marginals(task.config.n_values)
    of_target = marginals.gather(-1, batch.targets[..., None])[..., 0]
    right = marginals.argmax(-1) == batch.targets
    return {"loss": -of_target.log().mean(1),
            "accuracy": (posterior.best()[0] == batch.targets).all(1).double(),
            "feature_accuracy": right.double().mean(1)}


def ambiguous(task: Sraven, batch: Batch) -> Tensor:
    """Whether another set of rules and permutations fits the context but gives another answer.

    The definition in the paper's B.2, bool [B]; any multiset of rules counts.
    """
    posterior = answer_posterior(task, batch)
    other = (posterior.answers != batch.targets[posterior.instance]).any(1)
    return torch.bincount(posterior.instance[other], minlength=len(batch)) > 0


def official_ambiguous(grid: Tensor, n_values: int) -> Tensor:
    """Whether under some permutation every feature has a fitting rule with a wrong symbol.

    grid int64 [B, G, G, M] as shown, answer included -> bool [B]: what the official checker
    counts for the paper's Table A2. It differs from `ambiguous` in that all M features must go
    wrong at once, and in its looser distribute-three, see `_official_distribute`. It searches
    all permutations whether or not the instance was permuted.
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
