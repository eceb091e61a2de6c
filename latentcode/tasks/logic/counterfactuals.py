"""What would another function answer on the same inputs? The minimal pairs of fuzzy logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.errors import check
from latentcode.metrics import CLASSES
from latentcode.tasks.base import Batch, at
from latentcode.tasks.counterfactuals import (
    OTHERS,
    ChosenPairs,
    MinimalPairs,
    all_differ,
    class_rates,
    code_mask,
    first_to_differ,
    row_mask,
)
from latentcode.tasks.logic.task import FuzzyLogic, evaluate, literals

LEAST_DIFFERENCE = 0.1
"""Pairs count where f and f' differ by at least this at the query: nearer to which of the two an
answer lies says nothing where both are nearly the same."""
WINDOWS = (0.05, 0.025, 0.1)
"""How near to an answer of a factorial another one is of its class: first the width that counts,
which is half of `LEAST_DIFFERENCE`, then others that are reported beside it."""
TRIES = 64
"""Inputs that are drawn for a query before it is given up."""
PROBLEMS = 8
"""Unrelated problems that are drawn for a base, of which the most different one is taken."""


class LogicCounterfactuals(ChosenPairs):
    """The same inputs, with the examples' values of a function f' that differs in one term.

    The query is the same, so its right answer is f'(query) in place of f(query). The source of the
    control has the same function and query, and other examples.

    factorial  also draw the sources of `OTHERS`: the function is the operation, the query's input
               the operand, the examples' inputs the rest; and `permuted`, the base with its
               examples' values in another order. Query inputs x and x' are drawn until f(x),
               f'(x), f(x') and f'(x') all differ by `LEAST_DIFFERENCE`; where they never do, the
               pair does not count. Not where the task fixes some of its inputs
    """

    task: FuzzyLogic
    exclusive = False
    symbolic = False
    n_slots = 1
    n_read = 1
    chance = float("nan")
    least_difference = LEAST_DIFFERENCE
    scopes = ("pair", "row", "examples", "everything")
    places = ("context", "response")
    about_places: Mapping[str, str] = {
        "context": "the examples, of which the function can be inferred",
        "response": "the query, which holds its operand and where the answer is read"}
    whole = False
    notes = ("An answer counts as flipped where it is nearer to the source's, so that destroyed "
             "answers flip too: read the rate beside those of zero_ablation, mean_ablation and "
             "random.",)

    def __init__(self, task: FuzzyLogic, factorial: bool = True) -> None:
        self.task = task
        self.factorial = factorial and task.config.inputs == "uniform"
        self.constituents = tuple(task.term_symbols(t) for t in range(len(task.signs)))

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n bases, and for each one of its terms and another to put in its place.

        The other term is uniform over those of its kind (known or unknown) that f lacks. f' may
        be of any split.
        """
        config, kind = self.task.config, self._kind(split)
        check(len(kind) > config.n_terms, f"split {split!r} has {len(kind)} terms, of which "
              f"a function has {config.n_terms}; expected at least one more to put in its place")
        bases = self.task.sample(split, n, generator)
        device, terms = generator.device, bases.info["terms"]
        which = torch.randint(config.n_terms, (n, 1), generator=generator, device=device)
        order = torch.rand(n, len(self.constituents), generator=generator, device=device)
        order[:, :kind.start], order[:, kind.stop:] = -1.0, -1.0
        target = order.scatter(1, terms, -1.0).argmax(1)
        if not self.factorial:
            return self._minimal(bases, which[:, 0], target, generator)
        tried = torch.rand(2, n, TRIES, config.n_variables, generator=generator, device=device)
        x, other = self._first_to_differ(
            terms, terms.scatter(1, which, target[:, None]), tried[0], tried[1])
        variables = bases.inputs[..., :-1].clone()
        variables[:, -1] = x
        bases = self.task.build(split, bases.combination, variables, terms)
        pairs = self._with_others(self._minimal(bases, which[:, 0], target, generator),
                                  which[:, 0], other, generator)
        assert pairs.candidates is not None
        return replace(pairs, counts=all_differ(pairs.candidates, LEAST_DIFFERENCE))

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        pairs = self._minimal(batch, which, target, generator)
        terms, x = batch.info["terms"], batch.inputs[:, -1, :-1]
        tried = torch.rand(len(x), TRIES, x.shape[1], generator=generator, device=x.device)
        changed = terms.scatter(1, which[:, None], target[:, None])
        _, other = self._first_to_differ(terms, changed, x[:, None].expand_as(tried), tried)
        return self._with_others(pairs, which, other, generator)

    def _first_to_differ(
        self, terms: Tensor, changed: Tensor, x: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the first of several inputs [B, N, L] whose four answers differ: [B, L] each."""
        signs = self.task.signs_on(x.device)
        answers = torch.stack([evaluate(signs[functions], inputs) for inputs in (x, other)
                               for functions in (terms, changed)], -1)  # [B, N, 4]
        return first_to_differ(x, other, answers, LEAST_DIFFERENCE)

    def _minimal(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        terms, variables = batch.info["terms"], batch.inputs[..., :-1]
        changed = terms.scatter(1, which[:, None], target[:, None])
        sources = self.task.build(batch.split, batch.combination, variables, changed)
        fresh = torch.cat([torch.rand(
            variables[:, :-1].shape, generator=generator, device=terms.device),
            variables[:, -1:]], 1)
        same = self.task.build(batch.split, batch.combination, fresh, terms)
        differ = (sources.targets - batch.targets).abs()[:, 0] >= LEAST_DIFFERENCE
        return MinimalPairs(batch, sources, same, torch.zeros_like(target), at(terms, which),
                            target, differ)

    def _with_others(
        self, pairs: MinimalPairs, which: Tensor, other: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        """Add the sources of a factorial: term `which` [B] is another, `other` [B, L] are x'."""
        batch = pairs.bases
        terms, variables = batch.info["terms"], batch.inputs[..., :-1]
        n, device = len(batch), terms.device
        fresh = torch.rand(variables.shape, generator=generator, device=device)
        drawn = self.task.sample(batch.split, PROBLEMS * n, generator)
        taken = torch.cat([terms, pairs.source_label[:, None]], 1)[:, None, None]
        shared = (drawn.info["terms"].view(n, PROBLEMS, -1, 1) == taken).any(-1).sum(-1)
        unrelated = drawn[torch.arange(n, device=device) * PROBLEMS + shared.argmin(1)]
        others = {"unrelated": replace(unrelated, combination=batch.combination)}
        order = torch.rand(variables.shape[:2], generator=generator, device=device)[:, :-1]
        changed = terms.scatter(1, which[:, None], pairs.source_label[:, None])
        for name in [name for name in OTHERS if name != "unrelated"]:
            inputs = torch.cat([
                (fresh if "rest" in name else variables)[:, :-1],
                other[:, None] if "operands" in name else variables[:, -1:]], 1)
            others[name] = self.task.build(
                batch.split, batch.combination, inputs, changed if "operation" in name else terms)
        inputs = batch.inputs.clone()
        inputs[:, :-1, -1] = inputs[:, :-1, -1].gather(1, order.argsort(1))
        others["permuted"] = replace(batch, inputs=inputs)
        candidates = torch.cat([b.targets for b in (
            batch, pairs.sources, others["operands"], others["operation+operands"])], 1)
        return replace(pairs, others=others, candidates=candidates.double())

    def _kind(self, split: str) -> range:
        """Return the terms that a split combines: the known or the unknown ones."""
        n_known = self.task.config.n_known_terms
        return range(n_known, len(self.constituents)) if split == "unknown" else range(n_known)

    def held(self, batch: Batch) -> Tensor:
        """Return the terms of each function, int64 [B, K]."""
        return batch.info["terms"]

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        """Return the terms of the split's kind that a function lacks, bool [B, 2^L]."""
        kind = self._kind(batch.split)
        term = torch.arange(len(self.constituents), device=which.device)
        return (term >= kind.start) & (term < kind.stop) & ~self.membership(batch)[:, 0]

    def membership(self, batch: Batch) -> Tensor:
        """Return which terms each function has, bool [B, 1, 2^L]."""
        return F.one_hot(batch.info["terms"], len(self.constituents)).bool().any(1)[:, None]

    def answers(self, pairs: MinimalPairs) -> Tensor:
        """Return f(query) with each term in place of the base's, float64 [B, 2^L]; NaN for terms
        that f has already, and for those of another kind."""
        batch, base_label = pairs.bases, pairs.base_label[:, None]
        query = batch.inputs[:, -1, None, :-1].double()
        values = literals(self.task.signs_on(query.device), query).amin(-1)  # [B, 2^L]
        others = self.membership(batch)[:, 0].scatter(1, base_label, False)
        rest = torch.where(others, values, 0.0).amax(1, keepdim=True)
        defined = self.choices(batch, pairs.base_label).scatter(1, base_label, True)
        return torch.where(defined, torch.maximum(values, rest), torch.nan)

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes `pair`, `row` or `examples` hold, bool [B, Q, K].

        elsewhere  of the last example in place of the query
        """
        n_tokens = pairs.bases.inputs.shape[1]
        query = torch.full_like(pairs.slot, n_tokens - (2 if elsewhere else 1))
        if name == "row":
            return row_mask(query[:, None], n_tokens)
        if name == "examples":
            return self.scope("within context", pairs)
        return code_mask(query, query[:, None], n_tokens)

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return the roles of tokens, int64 [B, T]: examples, which are exchangeable, and query."""
        n, n_tokens = pairs.bases.inputs.shape[:2]
        is_query = torch.arange(n_tokens, device=pairs.slot.device) == n_tokens - 1
        return ("example", "query"), is_query.long().expand(n, -1)

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the last token, the query: int64 [B], from the end."""
        return torch.full_like(pairs.slot, -1)

    def right(self, pairs: MinimalPairs, logits: Tensor, name: str) -> Tensor:
        """Return where the answer lies nearer to its own function's than to the other's.

        Of a factorial: within `WINDOWS[0]` of its own answer.
        """
        answer = logits[:, -1, 0]
        if pairs.candidates is not None:
            return (answer - pairs.batch(name).targets[:, 0]).abs() < WINDOWS[0]
        base, source = pairs.bases.targets[:, 0], pairs.sources.targets[:, 0]
        right, wrong = (source, base) if name == "sources" else (base, source)
        return (answer - right).abs() < (answer - wrong).abs()

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what became of each answer, float [B] each.

        flip, unchanged  the answer lies nearer to f'(query), or not
        moved          where the answer lies between f(query) (0) and f'(query) (1)
        error_base_answer, error_source_answer  squared error against f(query), the base's, and
                     against f'(query), which is the source's
        base, operation, operands, answer, else  of a factorial: the nearest of its answers,
                     where the answer is nearer to it than `WINDOWS[0]` (`CLASSES`); those of
                     other windows are called `operation@0.1`
        """
        base_answer, source_answer = pairs.bases.targets[:, 0], pairs.sources.targets[:, 0]
        answer, gap = patched[:, -1, 0], source_answer - base_answer
        flip = ((answer - source_answer).abs() < (answer - base_answer).abs()).float()
        rates: dict[str, Tensor] = {}
        if pairs.candidates is not None:
            nearest = (answer[:, None] - pairs.candidates).abs().min(1)
            for window in WINDOWS:
                classes = torch.where(nearest.values < window, nearest.indices, len(CLASSES) - 1)
                rates |= class_rates(classes, "" if window == WINDOWS[0] else f"@{window}")
        return {**rates, "flip": flip, "unchanged": 1.0 - flip,
                # Pairs that do not count may have the same answer.
                "moved": (answer - base_answer) / torch.where(gap == 0, 1.0, gap),
                "error_base_answer": (answer - base_answer).square(),
                "error_source_answer": (answer - source_answer).square()}
