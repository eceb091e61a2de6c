"""How far the context determines the answer of a SRAVEN instance, in three senses.

1. `ambiguous`: the paper's words (B.2). Another set of rules and permutations fits all context
   panels and prescribes a different answer.
2. `official_ambiguous`: what the paper's Table A2 counts. Under one permutation, *every* feature
   has a fitting rule whose symbol is wrong.
3. `answer_posterior`: the probability of every answer given the context, under the generative
   process, and with it the accuracy of the best possible solver (`bayes_accuracy`): the ceiling
   against which SRAVEN accuracies are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from latentcode.errors import check_choice
from latentcode.metrics import Metric, mean_metric
from latentcode.tasks.batch import Batch
from latentcode.tasks.sraven.hypotheses import (
    candidate_features,
    count_alignments,
    instances_at_once,
    multiset_code,
    partner_tokens,
    sum_readings,
)
from latentcode.tasks.sraven.rules import DISTRIBUTE, complete, feature_grids_per_rule
from latentcode.tasks.sraven.task import Sraven


@dataclass(frozen=True)
class AnswerPosterior:
    """P(answer | context panels): all N answers that are possible for a batch of B instances.

    instance     int64 [N]     which instance, rising; answers of one instance in rising order
    answers      int64 [N, M]  symbols of the response tokens
    probability  float64 [N]   sums to one over each instance
    n_instances  B

    An instance whose context no combination of the prior can produce has no answers.
    """

    instance: Tensor
    answers: Tensor
    probability: Tensor
    n_instances: int

    def best(self) -> tuple[Tensor, Tensor]:
        """Return argmax P(answer) int64 [B, M] and its probability float64 [B].

        Of equally probable answers the first is returned; an instance without answers gets -1
        and probability 0. If the prior is the one that the instances were drawn from, the mean
        of the probability is the accuracy of this solver, with less noise than counting.
        """
        highest = self.probability.new_zeros(self.n_instances).scatter_reduce(
            0, self.instance, self.probability, "amax")
        # Equal probabilities may differ in the last digits, depending on the order of summing.
        is_best = self.probability >= highest[self.instance] * (1 - 1e-12)
        rank = torch.arange(len(self.instance), device=self.instance.device)
        first = self.instance.new_full((self.n_instances,), len(rank)).scatter_reduce(
            0, self.instance[is_best], rank[is_best], "amin")
        nothing = self.answers.new_full((1, self.answers.shape[1]), -1)
        return torch.cat((self.answers, nothing))[first], highest

    def count(self) -> Tensor:
        """Return the number of possible answers, int64 [B]."""
        return torch.bincount(self.instance, minlength=self.n_instances)

    def probability_of(self, targets: Tensor) -> Tensor:
        """Return P(targets) for targets int64 [B, M], float64 [B]."""
        equal = (self.answers == targets[self.instance]).all(1)
        return self._sum(self.probability * equal)

    def marginals(self, n_values: int) -> Tensor:
        """Return P(symbol of response token j), float64 [B, M, K]."""
        symbols = torch.arange(n_values, device=self.answers.device)
        equal = self.answers[..., None] == symbols
        total = self.probability.new_zeros(self.n_instances, *equal.shape[1:])
        return total.index_add_(0, self.instance, self.probability[:, None, None] * equal)

    def _sum(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.n_instances).index_add_(0, self.instance, values)


def answer_posterior(task: Sraven, batch: Batch, prior: str = "all") -> AnswerPosterior:
    """P(y | context) = sum over readings with answer y of P(combination) P(order) P(context).

    A reading is a relative permutation of the columns (one reading only where the task does not
    permute) and a rule per response token. Its prior is uniform over combinations, over the
    orders of the rules (unless they are sorted and the features not permuted) and over
    permutations; the likelihood of a feature's context under a rule that fits is one over the
    number of feature grids of that rule, and the answer then follows. Exact, in float64.

    prior  the combinations that the solver holds possible: "all" C(M + 7, M) of them, which is
           what a solver knows who knows the rules; or those of a split, such as "train".

    Raises `UnknownNameError` for another prior.
    """
    config = task.config
    check_choice("prior", prior, ("all", *task.splits))
    possible = task.all_combinations if prior == "all" else task.combinations(prior)
    device = batch.targets.device
    codes = multiset_code(possible).to(device)
    sizes = feature_grids_per_rule(config.n_values, config.grid_size)
    # Relative weights: only ratios matter, and large K would underflow.
    weights = torch.tensor([min(sizes) / s for s in sizes], dtype=torch.float64, device=device)
    partners = partner_tokens(config.n_features, config.grid_size).to(device)
    tokens = torch.arange(config.n_features, device=device)
    unpermuted = (partners[None] == tokens[:, None, None]).all(-1)  # [M, P]
    found = []
    for start, grid in _blocks(batch.info["grid"]):
        fits, answers = complete(candidate_features(grid), config.n_values)
        if not config.permuted:
            fits &= unpermuted[..., None]
        sorted_order = config.rule_order == "sorted" and not config.permuted
        readings = sum_readings(fits, answers, weights, partners, rules_rise=sorted_order)
        known = torch.isin(readings.rules, codes)
        rows = torch.cat((readings.instance[known, None] + start, readings.answers[known]), 1)
        found.append((rows, readings.weight[known]))
    rows, index = torch.unique(torch.cat([r for r, _ in found]), dim=0, return_inverse=True)
    weight = torch.cat([w for _, w in found])
    weight = weight.new_zeros(len(rows)).index_add_(0, index, weight)
    instance = rows[:, 0]
    total = weight.new_zeros(len(batch)).index_add_(0, instance, weight)
    return AnswerPosterior(instance, rows[:, 1:], weight / total[instance], len(batch))


def bayes_scores(task: Sraven, batch: Batch, prior: str = "all") -> dict[str, Tensor]:
    """What the best possible solver scores on a batch, per instance, as `Sraven.measures` [B].

    `accuracy` is 1 where the most probable joint answer is right, `feature_accuracy` the share
    of tokens whose most probable symbol is right, `loss` the cross-entropy of the true symbols
    under their posterior marginals (infinite where `prior` excludes the truth). No model beats
    their means on instances drawn from `prior`.
    """
    posterior = answer_posterior(task, batch, prior)
    marginals = posterior.marginals(task.config.n_values)
    of_target = marginals.gather(-1, batch.targets[..., None])[..., 0]
    right = (marginals.argmax(-1) == batch.targets) & (of_target > 0)
    return {"loss": -of_target.log().mean(1),
            "accuracy": (posterior.best()[0] == batch.targets).all(1).double(),
            "feature_accuracy": right.double().mean(1)}


def bayes_accuracy(
    task: Sraven, n: int, generator: torch.Generator, split: str = "test", prior: str = "all"
) -> Metric:
    """How often can a perfect solver get all M symbols right, on n fresh instances of a split?

    `prior` is what the solver holds possible, see `answer_posterior`: with "all" it knows the
    rules, with "train" also which combinations are trained on.
    """
    scores = bayes_scores(task, task.sample(split, n, generator), prior)
    return mean_metric(scores["accuracy"].cpu().numpy())


def ambiguous(task: Sraven, batch: Batch) -> Tensor:
    """Does another set of rules and permutations fit the context but give another answer?

    The definition in the paper's B.2, bool [B]; any multiset of rules counts.
    """
    posterior = answer_posterior(task, batch)
    other = (posterior.answers != batch.targets[posterior.instance]).any(1)
    return torch.bincount(posterior.instance[other], minlength=len(batch)) > 0


def official_ambiguous(grid: Tensor, n_values: int) -> Tensor:
    """Is there a permutation under which every feature has a fitting rule with a wrong symbol?

    grid int64 [B, G, G, M] as shown, answer included -> bool [B]: what the official checker
    counts for the paper's Table A2. It differs from `ambiguous` in that all M features must go
    wrong at once, and in its looser distribute-three, see `_official_distribute`. It searches
    all permutations whether or not the instance was permuted.
    """
    _, grid_size, _, n_features = grid.shape
    partners = partner_tokens(n_features, grid_size).to(grid.device)
    found = []
    for _, block in _blocks(grid):
        features = candidate_features(block)
        fits, answers = complete(features, n_values)
        fits[..., DISTRIBUTE], answers[..., DISTRIBUTE] = _official_distribute(features)
        wrong = (fits & (answers != features[..., -1, -1, None])).any(-1)
        found.append(count_alignments(wrong, partners) > 0)
    return torch.cat(found)


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
