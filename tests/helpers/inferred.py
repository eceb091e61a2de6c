"""A task whose rule has to be inferred from a context, and a model whose codes there are the rule.

Tokens, of which each is two numbers of 1: an example that shows a rule r of K, another one that
shows something else, a symbol s of K, and a response that shows nothing. The answer at the response
is s + r (mod K): the rule is the operation, the symbol the operand, the other example the rest.

In the model the rule leaves the example through the codes of that token in layer 0 alone: head r
attends to the token itself, whose value is the same always, and adds r to its residual stream. In
layer 1 the response copies r and s by codes that are the same in every problem, and the
feed-forward network, with a hidden unit for each pair, adds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from hand_built import EYE, K, blank, maps, read, spread
from torch import Tensor

from latentcode.errors import UnknownNameError
from latentcode.models.transformer import HookedTransformer
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import OTHERS, Counterfactuals, MinimalPairs, class_rates

RULE, REST, SYMBOL, FLAGS, MOVED, ADDED, FOR_RULE, FOR_SYMBOL, ANSWER = (
    slice(K * i, K * (i + 1)) for i in range(9))
"""Blocks of the residual stream: the inputs, what layer 0 adds, what layer 1 adds, the answer."""
N_INPUT, D = 4 * K, 9 * K
EXAMPLE, OTHER, OPERAND, RESPONSE, BLANK = (FLAGS.start + i for i in range(5))
"""What tells the tokens apart; the response's has two."""


class Inferred(Counterfactuals):
    """Problems of a rule, a rest and a symbol, and sources that differ in them."""

    constituents = tuple(f"+{r}" for r in range(K))
    n_slots = 1
    exclusive = True
    chance = 1.0 / K
    scopes = ("everything",)
    places = ("context", "operands", "response")
    factorial = True

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        def drawn() -> Tensor:
            return torch.randint(K, (n,), generator=generator)

        def another(*taken: Tensor) -> Tensor:
            free = ~F.one_hot(torch.stack(taken) % K, K).any(0)
            return torch.rand(free.shape, generator=generator).where(free, -1.0).argmax(1)

        rule, rest, symbol = drawn(), drawn(), drawn()
        target, elsewhere = another(rule), another(rest)
        step = target - rule
        fresh = another(symbol, symbol + step, symbol - step)
        base = self.batch(rule, rest, symbol)
        others = {name: replace(self.batch(
            target if "operation" in name else rule, elsewhere if "rest" in name else rest,
            fresh if "operands" in name else symbol), combination=base.combination)
            for name in OTHERS}
        others["unrelated"] = replace(
            self.batch(another(rule, target), elsewhere, another(symbol, fresh)),
            combination=base.combination)
        candidates = [(x + of) % K for x in (symbol, fresh) for of in (rule, target)]
        sources = replace(self.batch(target, rest, symbol), combination=base.combination)
        return MinimalPairs(
            base, sources, others["operands"], torch.zeros_like(rule), rule, target,
            torch.ones(n, dtype=torch.bool), others, torch.stack(candidates, 1).double())

    @staticmethod
    def batch(rule: Tensor, rest: Tensor, symbol: Tensor) -> Batch:
        shown = torch.stack([RULE.start + rule, REST.start + rest, SYMBOL.start + symbol,
                             torch.full_like(rule, BLANK)], 1)
        flags = torch.tensor([EXAMPLE, OTHER, OPERAND, RESPONSE])
        inputs = F.one_hot(shown, N_INPUT) + F.one_hot(flags, N_INPUT)
        return Batch(inputs.float(), (symbol + rule)[:, None] % K, rule * K + rest, {"rule": rule})

    def membership(self, batch: Batch) -> Tensor:
        return F.one_hot(batch.info["rule"], K).bool()[:, None]

    def place(self, name: str, pairs: MinimalPairs) -> Tensor:
        if name not in self.places:
            raise UnknownNameError("place", name, self.places)
        held = {"context": [True, True, False, False], "operands": [False, False, True, False],
                "response": [False, False, False, True]}
        return torch.tensor(held[name]).expand(len(pairs), -1)

    def scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        self.check_scope(name)
        if name == "everything":
            return torch.ones(len(pairs), 4, 4, dtype=torch.bool)
        return self.at_place(name, pairs)

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        return logits[:, -1].argmax(-1) == pairs.batch(of).targets[:, 0]

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        answer = patched[:, -1].argmax(-1)
        hits = F.pad(answer[:, None] == pairs.candidates, (0, 1), value=True)
        return {**class_rates(hits.long().argmax(1)),
                "flip": (answer == pairs.sources.targets[:, 0]).float(),
                "unchanged": (answer == pairs.bases.targets[:, 0]).float()}


def inferring_model() -> HookedTransformer:
    """Return the model whose codes at the context are the rule, in layer 0."""
    model = blank(2, 1, n_input=N_INPUT, d_model=D, n_heads=K + 1, d_mlp=K * K, answer=ANSWER)
    with torch.no_grad():
        first, second = (model.layer(i).attn for i in range(2))
        # Head r of the example is 1 where its rule is r; the last head adds something to all other
        # tokens, so that each is three numbers behind the layer.
        q, k, v = maps(1, K + 1, D)
        q[:K, RULE, 0] = EYE
        q[K, [OTHER, OPERAND, RESPONSE], 0] = 1.0
        k[:, EXAMPLE, 0] = 1.0
        v[:, EXAMPLE, 0] = 1.0
        read(first, 2, q, k, v)
        first.W_O[:K, 0, MOVED] = EYE
        first.W_O[K, 0, ADDED] = EYE[0]
        # The response copies what moved, and the symbol.
        q, k, v = maps(1, K + 1, D)
        q[:2, RESPONSE, 0] = 1.0
        k[0, EXAMPLE, 0], v[0, MOVED] = 1.0, EYE
        k[1, OPERAND, 0], v[1, SYMBOL] = 1.0, EYE
        read(second, 3, q, k, v)
        second.W_O[0, :, FOR_RULE], second.W_O[1, :, FOR_SYMBOL] = EYE, EYE
        # Behind it the response is five numbers. Unit (r, s) is 5 where both are there, else < 0.
        mlp, size = model.layer(1).mlp, spread(5, D)
        rule, symbol = (part.flatten() for part in torch.meshgrid(
            torch.arange(K), torch.arange(K), indexing="ij"))
        unit = torch.arange(K * K)
        mlp.W_in[FOR_RULE.start + rule, unit] = 10.0 * size
        mlp.W_in[FOR_SYMBOL.start + symbol, unit] = 10.0 * size
        mlp.b_in.fill_(10.0 * 2 * 5 / D - 15.0)
        mlp.W_out[unit, ANSWER.start + (rule + symbol) % K] = 1.0
    return model
