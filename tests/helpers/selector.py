"""A model whose code provably selects the operation, and its minimal pairs.

Tokens are one-hot: a symbol s of K, then two queries that each name a rule r of K. The answer at
a query is s + r (mod K). The only layer has K heads: the score of head h is 1 where the query
names rule h and the key is the symbol, else 0, so that the code of (query, symbol) is the rule,
one-hot; head h's value map turns s into s + h. Nothing else of the model does anything.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.models.config import ModelConfig
from latentcode.models.dense import LAYER_NORM_EPSILON
from latentcode.models.transformer import HookedTransformer
from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import (
    ChosenPairs,
    MinimalPairs,
    code_mask,
    row_mask,
)

K = 8
"""Symbols, rules and heads."""
D = 4 * K
"""Width: symbols, rules, answers, and as many again that nothing uses."""


def selector_model() -> HookedTransformer:
    """Return the model with its weights set by hand."""
    model = HookedTransformer(ModelConfig(
        d_input=2 * K, d_output=K, n_layers=1, d_model=D, n_heads=K, d_head=1, d_head_v=K, d_mlp=1,
        normalization="none", value_network="linear", positions="none", attention_dropout=0.0))
    # LayerNorm turns a one-hot vector into c (one-hot - 1 / D).
    c = 1.0 / ((1.0 / D) * (1.0 - 1.0 / D) + LAYER_NORM_EPSILON) ** 0.5
    attention = model.layer(0).attn
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for module in (model.layer(0).ln1, model.layer(0).ln2, model.ln_final):
            module.w.fill_(1.0)
        model.embed.W_E[:, :2 * K] = torch.eye(2 * K)
        for head in range(K):
            attention.W_Q[head, K + head, 0] = 1.0 / c
            attention.b_Q[head, 0] = 1.0 / D
            attention.W_K[head, :K, 0] = 1.0 / c
            attention.b_K[head, 0] = K / D
            attention.W_V[head, :K] = torch.eye(K) / c
            attention.b_V[head] = 1.0 / D
            attention.W_O[head, :, 2 * K:3 * K] = torch.eye(K).roll(head, 1)
        model.unembed.W_U[2 * K:3 * K] = torch.eye(K)
    return model


class Selector(ChosenPairs):
    """Two queries, each with its rule, of which one differs in the donor.

    The control's donor has the same rules and another symbol, which the code does not hold.
    """

    constituents = tuple(f"+{r}" for r in range(K))
    n_slots = 2
    exclusive = True
    symbolic = True
    chance = 1.0 / K
    scopes = ("pair", "row", "everything")

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        def integers(low: int, high: int, *shape: int) -> Tensor:
            return torch.randint(low, high, shape, generator=generator)

        symbol, rules, slot = integers(0, K, n), integers(0, K, n, 2), integers(0, 2, n)
        source = rules.gather(1, slot[:, None])[:, 0]
        target = (source + integers(1, K, n)) % K
        return self._with_target(self.batch(symbol, rules), slot, target, generator)

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        symbol, rules = batch.inputs[:, 0].argmax(-1), batch.info["rules"]
        fresh = (symbol + torch.randint(1, K, (len(which),), generator=generator)) % K
        other = rules.scatter(1, which[:, None], target[:, None])
        return MinimalPairs(
            batch, self.batch(symbol, other), self.batch(fresh, rules), which,
            rules.gather(1, which[:, None])[:, 0], target,
            torch.ones(len(which), dtype=torch.bool))

    def held(self, batch: Batch) -> Tensor:
        return batch.info["rules"]

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        return ~F.one_hot(batch.info["rules"].gather(1, which[:, None])[:, 0], K).bool()

    def answers(self, pairs: MinimalPairs) -> Tensor:
        symbol = pairs.instances.inputs[:, 0].argmax(-1, keepdim=True)
        return ((symbol + torch.arange(K)) % K).double()

    def outputs(self, slot: Tensor, logits: Tensor) -> Tensor:
        return logits[torch.arange(len(slot)), 1 + slot].double().softmax(-1)

    @staticmethod
    def batch(symbol: Tensor, rules: Tensor) -> Batch:
        tokens = torch.cat([symbol[:, None], K + rules], 1)
        return Batch(F.one_hot(tokens, 2 * K).float(), (symbol[:, None] + rules) % K,
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
        return (logits[:, 1:].argmax(-1) == getattr(pairs, of).targets).all(1)

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, donor: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        slot = pairs.slot[:, None]
        answer = patched[:, 1:].argmax(-1)
        chosen = answer.gather(1, slot)
        other = answer.gather(1, 1 - slot) == pairs.instances.targets.gather(1, 1 - slot)
        return {"switch": (chosen == pairs.donors.targets.gather(1, slot))[:, 0].float(),
                "stay": (chosen == pairs.instances.targets.gather(1, slot))[:, 0].float(),
                "others": other[:, 0].float()}
