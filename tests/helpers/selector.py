"""A task whose instances are an operation, an operand and a context, and nothing else.

Tokens are one-hot: a symbol s of K, then two queries, each in its place, that name a rule r of K.
The answer at a query is s + r (mod K): the rule is the operation, the symbol the operand, and the
rule of the other query the context. The models that answer it are those of `hand_built`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import (
    OTHERS,
    ChosenPairs,
    MinimalPairs,
    class_rates,
    code_mask,
    row_mask,
)

K = 8
"""Symbols and rules."""
N_INPUT = 3 * K
"""Symbols, the rules of the first query and those of the second."""


class Selector(ChosenPairs):
    """Two queries, each with its rule, of which one differs in the source.

    The control's source has the same rules and another symbol. `unrelated` has a third rule, a
    third symbol and another context.
    """

    constituents = tuple(f"+{r}" for r in range(K))
    n_slots = 2
    exclusive = True
    symbolic = True
    chance = 1.0 / K
    scopes = ("pair", "row", "everything")
    factorial = True

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        def integers(low: int, high: int, *shape: int) -> Tensor:
            return torch.randint(low, high, shape, generator=generator)

        symbol, rules, slot = integers(0, K, n), integers(0, K, n, 2), integers(0, 2, n)
        base_label = rules.gather(1, slot[:, None])[:, 0]
        target = (base_label + integers(1, K, n)) % K
        return self._with_target(self.batch(symbol, rules), slot, target, generator)

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        symbol, rules = symbol_of(batch), batch.info["rules"]
        base_label, context = (rules.gather(1, k[:, None])[:, 0] for k in (which, 1 - which))
        step = target - base_label

        def another(*taken: Tensor) -> Tensor:
            free = ~F.one_hot(torch.stack(taken) % K, K).any(0)
            return torch.rand(free.shape, generator=generator).where(free, -1.0).argmax(1)

        # Where x' - x is none of 0, B - A and A - B, all four answers differ.
        fresh, elsewhere = another(symbol, symbol + step, symbol - step), another(context)

        def problem(x: Tensor, rule: Tensor, context: Tensor) -> Batch:
            both = torch.stack([rule, context], 1)
            return replace(self.batch(x, torch.where(which[:, None] == 0, both, both.flip(1))),
                           combination=batch.combination)

        others = {name: problem(fresh if "operands" in name else symbol,
                                target if "operation" in name else base_label,
                                elsewhere if "rest" in name else context) for name in OTHERS}
        others["unrelated"] = problem(another(symbol, fresh), another(base_label, target),
                                      elsewhere)
        candidates = [(x + rule) % K for x in (symbol, fresh) for rule in (base_label, target)]
        return MinimalPairs(
            batch, problem(symbol, target, context), others["operands"], which, base_label, target,
            torch.ones(len(which), dtype=torch.bool), others, torch.stack(candidates, 1).double())

    def held(self, batch: Batch) -> Tensor:
        return batch.info["rules"]

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        return ~F.one_hot(batch.info["rules"].gather(1, which[:, None])[:, 0], K).bool()

    def answers(self, pairs: MinimalPairs) -> Tensor:
        return ((symbol_of(pairs.bases)[:, None] + torch.arange(K)) % K).double()

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        return pairs.slot - self.n_slots

    @staticmethod
    def batch(symbol: Tensor, rules: Tensor) -> Batch:
        tokens = torch.cat([symbol[:, None], rules + torch.tensor([K, 2 * K])], 1)
        return Batch(F.one_hot(tokens, N_INPUT).float(), (symbol[:, None] + rules) % K,
                     rules[:, 0] * K + rules[:, 1], {"rules": rules})

    def membership(self, batch: Batch) -> Tensor:
        return F.one_hot(batch.info["rules"], K).bool()

    def scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        self.check_scope(name)
        query = 1 + (1 - pairs.slot if elsewhere else pairs.slot)
        if name == "everything":
            return torch.ones(len(query), 3, 3, dtype=torch.bool)
        if name == "row":
            return row_mask(query[:, None], 3)
        return code_mask(query, torch.zeros_like(query)[:, None], 3)

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        return (logits[:, 1:].argmax(-1) == pairs.batch(of).targets).all(1)

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        slot = pairs.slot[:, None]
        answer = patched[:, 1:].argmax(-1)
        chosen = answer.gather(1, slot)
        other = answer.gather(1, 1 - slot) == pairs.bases.targets.gather(1, 1 - slot)
        hits = F.pad(chosen == pairs.candidates, (0, 1), value=True)  # or else none of them
        return {**class_rates(hits.long().argmax(1)),
                "flip": (chosen == pairs.sources.targets.gather(1, slot))[:, 0].float(),
                "unchanged": (chosen == pairs.bases.targets.gather(1, slot))[:, 0].float(),
                "others": other[:, 0].float()}


def symbol_of(batch: Batch) -> Tensor:
    """Return the symbol of each instance, int64 [B]."""
    return batch.inputs[:, 0].argmax(-1)
