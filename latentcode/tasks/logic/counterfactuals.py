"""What would another function answer on the same inputs? The minimal pairs of fuzzy logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from latentcode.errors import check
from latentcode.metrics import CLASSES
from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import (
    OTHERS,
    ChosenPairs,
    MinimalPairs,
    all_differ,
    class_rates,
    code_mask,
    first_to_differ,
    row_mask,
    token_mask,
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
               the operand, the examples' inputs the context; and `permuted`, the base with
               its examples' values in another order. Query inputs x and x' are drawn until f(x),
               f'(x), f(x') and f'(x') all differ by `LEAST_DIFFERENCE`; where they never do, the
               pair does not count. Not where the task fixes some of its inputs
    """

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
        be of any split. `ConfigError` where its kind has no other term.
        """
        config = self.task.config
        first, last = self._kind(split)
        check(last - first > config.n_terms, f"split {split!r} has {last - first} terms, of which "
              f"a function has {config.n_terms}; expected at least one more to put in its place")
        bases = self.task.sample(split, n, generator)
        device, terms = generator.device, bases.info["terms"]
        k = torch.randint(config.n_terms, (n, 1), generator=generator, device=device)
        order = torch.rand(n, len(self.constituents), generator=generator, device=device)
        order[:, :first], order[:, last:] = -1.0, -1.0
        target = order.scatter(1, terms, -1.0).argmax(1, keepdim=True)
        if not self.factorial:
            return self._minimal(bases, k[:, 0], target[:, 0], generator)
        tried = torch.rand(2, n, TRIES, config.n_variables, generator=generator, device=device)
        x, other = self._first_to_differ(terms, terms.scatter(1, k, target), tried[0], tried[1])
        variables = bases.inputs[..., :-1].clone()
        variables[:, -1] = x
        bases = self.task.build_functions(split, bases.combination, terms, variables)
        pairs = self._with_others(self._minimal(bases, k[:, 0], target[:, 0], generator), k,
                                  other, generator)
        assert pairs.candidates is not None
        return replace(pairs, counts=all_differ(pairs.candidates, LEAST_DIFFERENCE))

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        pairs, k = self._minimal(batch, which, target, generator), which[:, None]
        terms, x = batch.info["terms"], batch.inputs[:, -1, :-1]
        tried = torch.rand(len(x), TRIES, x.shape[1], generator=generator, device=x.device)
        _, other = self._first_to_differ(
            terms, terms.scatter(1, k, target[:, None]), x[:, None].expand_as(tried), tried)
        return self._with_others(pairs, k, other, generator)

    def _first_to_differ(
        self, terms: Tensor, changed: Tensor, x: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the first of several inputs [B, N, L] whose four answers differ: [B, L] each.

        The first of all where there is none.
        """
        signs = self.task.signs_on(x.device)
        answers = torch.stack([evaluate(signs[functions], inputs) for inputs in (x, other)
                               for functions in (terms, changed)], -1)  # [B, N, 4]
        return first_to_differ(x, other, answers, LEAST_DIFFERENCE)

    def _minimal(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        terms, variables, k = batch.info["terms"], batch.inputs[..., :-1], which[:, None]
        sources = self.task.build_functions(
            batch.split, batch.combination, terms.scatter(1, k, target[:, None]), variables)
        fresh = torch.cat([torch.rand(
            variables[:, :-1].shape, generator=generator, device=terms.device),
            variables[:, -1:]], 1)
        same = self.task.build_functions(batch.split, batch.combination, terms, fresh)
        differ = (sources.targets - batch.targets).abs()[:, 0] >= LEAST_DIFFERENCE
        return MinimalPairs(batch, sources, same, torch.zeros_like(target),
                            terms.gather(1, k)[:, 0], target, differ)

    def _with_others(
        self, pairs: MinimalPairs, which: Tensor, other: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        """Add the sources of a factorial: a term `which` [B, 1] is another, `other` [B, L] are x'.
        """
        batch = pairs.bases
        terms, variables = batch.info["terms"], batch.inputs[..., :-1]
        device = terms.device
        fresh = torch.rand(variables.shape, generator=generator, device=device)
        elsewhere = self.task.sample(batch.split, PROBLEMS * len(batch), generator)
        taken = torch.cat([terms, pairs.source_label[:, None]], 1)[:, None, None]
        drawn = elsewhere.info["terms"].view(len(batch), PROBLEMS, -1, 1)
        least = (drawn == taken).any(-1).sum(-1).argmin(1)  # terms that it shares with f and f'
        elsewhere = elsewhere[torch.arange(len(batch), device=device) * PROBLEMS + least]
        order = torch.rand(variables.shape[:2], generator=generator, device=device)[:, :-1]
        others = {"unrelated": replace(elsewhere, combination=batch.combination)}
        for name in [name for name in OTHERS if name not in others]:
            inputs = torch.cat([
                (fresh if "rest" in name else variables)[:, :-1],
                other[:, None] if "operands" in name else variables[:, -1:]], 1)
            function = (terms.scatter(1, which, pairs.source_label[:, None]) if "operation" in name
                        else terms)
            others[name] = self.task.build_functions(batch.split, batch.combination, function,
                                                     inputs)
        inputs = batch.inputs.clone()
        inputs[:, :-1, -1] = inputs[:, :-1, -1].gather(1, order.argsort(1))
        others["permuted"] = replace(batch, inputs=inputs)
        candidates = torch.cat([b.targets for b in (
            batch, pairs.sources, others["operands"], others["operation+operands"])], 1)
        return replace(pairs, others=others, candidates=candidates.double())

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
        """Return f(query) with each term in place of the base's, float64 [B, 2^L].

        NaN for terms that f has already, and for those of another kind.
        """
        batch, base_label = pairs.bases, pairs.base_label[:, None]
        signs = self.task.signs_on(base_label.device)
        query = batch.inputs[:, -1, None, :-1].double()
        values = literals(signs, query).amin(-1)  # [B, 2^L]
        others = self.membership(batch)[:, 0].scatter(1, base_label, False)
        rest = torch.where(others, values, 0.0).amax(1, keepdim=True)
        defined = self.choices(batch, base_label[:, 0]).scatter(1, base_label, True)
        return torch.where(defined, torch.maximum(values, rest), torch.nan)

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the last token, the query: int64 [B], from the end."""
        return torch.full_like(pairs.slot, -1)

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

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes `pair`, `row` or `examples` hold, bool [B, Q, K].

        elsewhere  of the last example in place of the query
        """
        n_tokens = pairs.bases.inputs.shape[1]
        query = torch.full_like(pairs.slot, n_tokens - (2 if elsewhere else 1))
        if name == "row":
            return row_mask(query[:, None], n_tokens)
        if name == "examples":
            return self.at_place("within context", pairs)
        return code_mask(query, query[:, None], n_tokens)

    def place(self, name: str, pairs: MinimalPairs) -> Tensor:
        """Return the examples, or the query."""
        return token_mask(self.task, name, pairs.bases)

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return the roles of tokens, int64 [B, T]: examples, which are exchangeable, and query."""
        n, n_tokens = pairs.bases.inputs.shape[:2]
        is_query = torch.arange(n_tokens, device=pairs.slot.device) == n_tokens - 1
        return ("example", "query"), is_query.long().expand(n, -1)

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        """Return where the answer lies nearer to its own function's than to the other's.

        Of a factorial: within `WINDOWS[0]` of its own answer.
        """
        if pairs.candidates is not None:
            return (logits[:, -1, 0] - pairs.batch(of).targets[:, 0]).abs() < WINDOWS[0]
        ours, theirs = pairs.bases.targets[:, 0], pairs.sources.targets[:, 0]
        return _nearer(logits, theirs, ours) if of == "sources" else _nearer(logits, ours, theirs)

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
        ours, theirs = pairs.bases.targets[:, 0], pairs.sources.targets[:, 0]
        answer = patched[:, -1, 0]
        flip = _nearer(patched, theirs, ours).float()
        classes: dict[str, Tensor] = {}
        if pairs.candidates is not None:
            distance = (answer[:, None] - pairs.candidates).abs().min(1)
            for window in WINDOWS:
                found = torch.where(distance.values < window, distance.indices, len(CLASSES) - 1)
                classes |= class_rates(found, "" if window == WINDOWS[0] else f"@{window}")
        return {**classes, "flip": flip, "unchanged": 1.0 - flip,
                # Pairs that do not count may have the same answer.
                "moved": (answer - ours) / torch.where(theirs == ours, 1.0, theirs - ours),
                "error_base_answer": (answer - ours).square(),
                "error_source_answer": (answer - theirs).square()}


def _nearer(logits: Tensor, to: Tensor, than: Tensor) -> Tensor:
    answer = logits[:, -1, 0]
    return (answer - to).abs() < (answer - than).abs()
