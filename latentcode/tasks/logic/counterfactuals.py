"""What would another function answer on the same inputs? The minimal pairs of fuzzy logic."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from latentcode.errors import check
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import (
    Answered,
    ChosenPairs,
    MinimalPairs,
    code_mask,
    row_mask,
)
from latentcode.tasks.logic.task import FuzzyLogic, literals

LEAST_DIFFERENCE = 0.1
"""Pairs count where f and f' differ by at least this at the query: nearer to which of the two an
answer lies says nothing where both are nearly the same."""


class LogicCounterfactuals(ChosenPairs):
    """The same inputs, with the examples' values of a function f' that differs in one term.

    The query is the same, so its right answer is f'(query) in place of f(query). The donor of the
    control has the same function and query, and other examples.
    """

    exclusive = False
    symbolic = False
    n_slots = 1
    chance = float("nan")
    scopes = ("pair", "row", "everything")
    notes = ("An answer counts as switched where it is nearer to the donor's, so that destroyed "
             "answers switch too: read the rate beside those of zero, mean and random.",)

    def __init__(self, task: FuzzyLogic) -> None:
        self.task = task
        self.constituents = tuple(task.term_symbols(t) for t in range(len(task.signs)))

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n instances, and for each one of its terms and another to put in its place.

        The other term is uniform over those of its kind (known or unknown) that f lacks. f' may
        be of any split. `ConfigError` where its kind has no other term.
        """
        config = self.task.config
        first, last = self._kind(split)
        check(last - first > config.n_terms, f"split {split!r} has {last - first} terms, of which "
              f"a function has {config.n_terms}; expected at least one more to put in its place")
        instances = self.task.sample(split, n, generator)
        device, terms = generator.device, instances.info["terms"]
        k = torch.randint(config.n_terms, (n, 1), generator=generator, device=device)
        order = torch.rand(n, len(self.constituents), generator=generator, device=device)
        order[:, :first], order[:, last:] = -1.0, -1.0
        target = order.scatter(1, terms, -1.0).argmax(1)
        return self._with_target(instances, k[:, 0], target, generator)

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        terms, variables, k = batch.info["terms"], batch.inputs[..., :-1], which[:, None]
        donors = self.task.build_functions(
            batch.split, batch.combination, terms.scatter(1, k, target[:, None]), variables)
        fresh = torch.cat([torch.rand(
            variables[:, :-1].shape, generator=generator, device=terms.device),
            variables[:, -1:]], 1)
        same = self.task.build_functions(batch.split, batch.combination, terms, fresh)
        differ = (donors.targets - batch.targets).abs()[:, 0] >= LEAST_DIFFERENCE
        return MinimalPairs(batch, donors, same, torch.zeros_like(target),
                            terms.gather(1, k)[:, 0], target, differ)

    def held(self, batch: Batch) -> Tensor:
        """Return the terms of each function, int64 [B, K]."""
        return batch.info["terms"]

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        """Return the terms of the split's kind that a function lacks, bool [B, 2^L]."""
        first, last = self._kind(batch.split)
        possible = torch.zeros(len(self.constituents), dtype=torch.bool, device=which.device)
        possible[first:last] = True
        return possible & ~self.membership(batch)[:, 0]

    def answers(self, pairs: MinimalPairs) -> Tensor:
        """Return f(query) with each term in place of the source, float64 [B, 2^L].

        NaN for terms that f has already, and for those of another kind.
        """
        batch, source = pairs.instances, pairs.source[:, None]
        signs = self.task.signs.to(source.device)
        query = batch.inputs[:, -1, None, :-1].double()
        values = literals(signs, query).amin(-1)  # [B, 2^L]
        others = self.membership(batch)[:, 0].scatter(1, source, False)
        rest = torch.where(others, values, 0.0).amax(1, keepdim=True)
        defined = self.choices(batch, source[:, 0]).scatter(1, source, True)
        return torch.where(defined, torch.maximum(values, rest), torch.nan)

    def outputs(self, slot: Tensor, logits: Tensor) -> Tensor:
        """Return the predicted f(query), float64 [B, 1]."""
        return logits[:, -1, :1].double()

    def _kind(self, split: str) -> tuple[int, int]:
        """Return the range of the terms that a split combines."""
        n_known = self.task.config.n_known_terms
        return (n_known, len(self.constituents)) if split == "unknown" else (0, n_known)

    def membership(self, batch: Batch) -> Tensor:
        """Return which terms each function has, bool [B, 1, 2^L]."""
        terms = batch.info["terms"]
        has = torch.zeros(len(terms), len(self.constituents), dtype=torch.bool,
                          device=terms.device)
        return has.scatter(1, terms, True)[:, None]

    def scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes a scope holds, bool [B, Q, K].

        elsewhere  of the last example in place of the query
        """
        self.check_scope(name)
        n_tokens = pairs.instances.inputs.shape[1]
        query = torch.full_like(pairs.slot, n_tokens - (2 if elsewhere else 1))
        if name == "everything":
            return torch.ones(len(query), n_tokens, n_tokens, dtype=torch.bool,
                              device=query.device)
        if name == "row":
            return row_mask(query[:, None], n_tokens)
        return code_mask(query, query[:, None], n_tokens)

    def right(self, pairs: MinimalPairs, logits: Tensor, of: Answered) -> Tensor:
        """Return where the answer lies nearer to its own function's than to the other's."""
        ours, theirs = pairs.instances.targets[:, 0], pairs.donors.targets[:, 0]
        return _nearer(logits, theirs, ours) if of == "donors" else _nearer(logits, ours, theirs)

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, donor: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what became of each answer, float [B] each.

        switch, stay   the answer lies nearer to f'(query), or not
        moved          where the answer lies between f(query) (0) and f'(query) (1)
        error_source, error_target  squared error against f(query) and against f'(query)
        """
        ours, theirs = pairs.instances.targets[:, 0], pairs.donors.targets[:, 0]
        answer = patched[:, -1, 0]
        switch = _nearer(patched, theirs, ours).float()
        return {"switch": switch, "stay": 1.0 - switch,
                # Pairs that do not count may have the same answer.
                "moved": (answer - ours) / torch.where(theirs == ours, 1.0, theirs - ours),
                "error_source": (answer - ours).square(),
                "error_target": (answer - theirs).square()}


def _nearer(logits: Tensor, to: Tensor, than: Tensor) -> Tensor:
    answer = logits[:, -1, 0]
    return (answer - to).abs() < (answer - than).abs()
