"""What would another rule answer on the same row? The minimal pairs of SRAVEN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.tasks.batch import Batch
from latentcode.tasks.counterfactuals import (
    Answered,
    ChosenPairs,
    MinimalPairs,
    code_mask,
    row_mask,
)
from latentcode.tasks.sraven.rules import (
    DISTRIBUTE,
    RULES,
    complete,
    random_permutations,
    sample_features,
)
from latentcode.tasks.sraven.task import Sraven, rules_shown, tokenize, tokens_of


class SravenCounterfactuals(ChosenPairs):
    """The first rows of one feature, rewritten under another rule; the last row is untouched.

    With a, b the symbols that the last row shows of the feature, rule B answers (modulo K)

        constant b;  progression by d: b + d;  sum a + b;  difference a - b
        distribute-three: the third symbol, which the rewritten rows supply (only for a != b)

    A row that was drawn under rule A need not obey rule B (a constant row has a = b): the donor is
    a problem that no rule generates as a whole, and what its answer should be is known all the
    same. So pairs are kept where the model gives that answer (`right`).
    """

    constituents = RULES
    exclusive = True
    symbolic = True
    scopes = ("pair", "pairs", "row", "feature", "everything")

    def __init__(self, task: Sraven) -> None:
        self.task = task
        self.n_slots = task.config.n_features
        self.chance = 1.0 / task.config.n_values
        self.lacks = {} if self.n_slots > 1 else {
            "elsewhere": "with one feature there is no other response token"}

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n instances, and for each a response token and another rule, both uniform."""
        instances = self.task.sample(split, n, generator)
        device = generator.device
        slot = torch.randint(self.n_slots, (n,), generator=generator, device=device)
        source = rules_shown(instances).gather(1, slot[:, None])[:, 0]
        other = torch.randint(1, len(RULES), (n,), generator=generator, device=device)
        target = (source + other) % len(RULES)
        return self._with_target(instances, slot, target, generator)

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        source = rules_shown(batch).gather(1, which[:, None])[:, 0]
        third = self._other_symbol(batch, which, generator)
        donors, possible = self._rewritten(batch, which, target, third, generator)
        own = self._answer(batch, which)
        same, _ = self._rewritten(batch, which, source, own, generator)
        differ = (donors.targets != batch.targets).any(1)
        return MinimalPairs(batch, donors, same, which, source, target, possible & differ)

    def held(self, batch: Batch) -> Tensor:
        """Return the rule of each response token, int64 [B, M]."""
        return rules_shown(batch)

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        """Return every rule but the response token's own, bool [B, 8]."""
        own = rules_shown(batch).gather(1, which[:, None])
        return ~F.one_hot(own[:, 0], len(RULES)).bool()

    def answers(self, pairs: MinimalPairs) -> Tensor:
        """Return the symbol that each rule puts into the last row, float64 [B, 8].

        The answer of distribute-three hangs on the other rows: NaN but for an instance that has
        the rule, or whose donor has it.
        """
        batch, slot = pairs.instances, pairs.slot
        feature = batch.info["grid"].gather(3, self._places(batch, slot))[..., 0]
        _, answers = complete(feature, self.task.config.n_values)
        answers = answers.double()
        third = torch.where(pairs.counts, self._answer(pairs.donors, slot), torch.nan)
        answers[:, DISTRIBUTE] = torch.where(pairs.target == DISTRIBUTE, third, torch.nan)
        own = self._answer(batch, slot)[:, None].double()
        return answers.scatter(1, pairs.source[:, None], own)

    def outputs(self, slot: Tensor, logits: Tensor) -> Tensor:
        """Return the probabilities of the symbols at a response token, float64 [B, K]."""
        response = logits[:, -self.n_slots:].double().softmax(-1)
        return response[torch.arange(len(slot), device=slot.device), slot]

    def membership(self, batch: Batch) -> Tensor:
        """Return which rule each response token has, bool [B, M, 8]."""
        return F.one_hot(rules_shown(batch), len(RULES)).bool()

    def scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes a scope holds, bool [B, Q, K].

        elsewhere  of the next response token, which is another feature
        """
        self.check_scope(name)
        slot = (pairs.slot + 1) % self.n_slots if elsewhere else pairs.slot
        config, batch = self.task.config, pairs.instances
        n_tokens, size = batch.inputs.shape[1], config.grid_size
        if name == "everything":
            return torch.ones(len(slot), n_tokens, n_tokens, dtype=torch.bool, device=slot.device)
        tokens = tokens_of(batch.info["permutations"], slot)  # [B, G]
        panels = torch.arange(size * size, device=slot.device).view(size, size)
        places = panels * config.n_features + tokens[:, None]  # [B, row, column]
        response = places[:, -1, -1]
        if name == "feature":
            return row_mask(places.flatten(1), n_tokens)
        if name == "row":
            return row_mask(response[:, None], n_tokens)
        keys = response[:, None] if name == "pair" else places[:, -1]
        return code_mask(response, keys, n_tokens)

    def right(self, pairs: MinimalPairs, logits: Tensor, of: Answered) -> Tensor:
        """Return where the answer at the response token is right, bool [B]."""
        batch: Batch = getattr(pairs, of)
        return self._answer(batch, pairs.slot) == self._chosen(logits, pairs.slot)

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, donor: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what became of each answer, float [B] each.

        switch, stay   the answer is the donor's, is the instance's
        others         the answers to all other features are unchanged
        p_target, p_source  probability of the two answers
        kl             KL(clean || patched) at the response token, in nats
        kl_others      the mean of the same over the other features
        """
        slot, m = pairs.slot, self.n_slots
        ours, theirs = (self._answer(b, slot) for b in (pairs.instances, pairs.donors))
        chosen = self._chosen(patched, slot)
        before, after = (F.log_softmax(logits[:, -m:].double(), -1)
                         for logits in (clean, patched))
        divergence = (before.exp() * (before - after)).sum(-1)  # [B, M]
        here = F.one_hot(slot, m).bool()
        unchanged = patched[:, -m:].argmax(-1) == clean[:, -m:].argmax(-1)
        instance = torch.arange(len(slot), device=slot.device)
        probability = after.exp()[instance, slot]
        return {
            "switch": (chosen == theirs).float(), "stay": (chosen == ours).float(),
            "others": (unchanged | here).all(1).float(),
            "p_target": probability.gather(1, theirs[:, None])[:, 0].float(),
            "p_source": probability.gather(1, ours[:, None])[:, 0].float(),
            "kl": divergence[instance, slot].float(),
            "kl_others": (divergence * ~here).sum(1).float() / max(m - 1, 1)}

    def _rewritten(
        self, batch: Batch, slot: Tensor, rule: Tensor, third: Tensor, generator: torch.Generator
    ) -> tuple[Batch, Tensor]:
        """Return the batch with the first rows of a feature redrawn, and where that is possible.

        The target of the feature becomes the answer of `rule`; that of distribute-three is `third`,
        which the rows then hold beside the symbols of the last row.
        """
        config = self.task.config
        grid, size = batch.info["grid"].clone(), config.grid_size
        place = self._places(batch, slot)
        feature = grid.gather(3, place)[..., 0]  # [B, row, column]
        fresh = sample_features(rule, config.n_values, size, generator)
        context = feature[:, -1, :-1]
        symbols = torch.cat([context, third[:, None]], 1)
        orders = random_permutations((len(batch), size), size, generator)
        arranged = symbols[:, None].expand(-1, size, -1).gather(2, orders)
        fresh = torch.where((rule == DISTRIBUTE)[:, None, None], arranged, fresh)
        in_order = symbols.sort(1).values
        distinct = (in_order.diff(dim=1) != 0).all(1)
        feature = torch.cat([fresh[:, :-1], feature[:, -1:]], 1)
        _, answers = complete(feature, config.n_values)
        answer = answers.gather(1, rule[:, None])[:, 0]
        feature[:, -1, -1] = answer
        grid.scatter_(3, place, feature[..., None])
        rules = batch.info["rules"].clone()
        shown = batch.info["permutations"][:, -1].gather(1, slot[:, None])
        rules.scatter_(1, shown, rule[:, None])
        return replace(
            batch, inputs=tokenize(grid, config.n_values), targets=grid[:, -1, -1],
            info={**batch.info, "rules": rules, "grid": grid}), (rule != DISTRIBUTE) | distinct

    def _other_symbol(self, batch: Batch, slot: Tensor, generator: torch.Generator) -> Tensor:
        """Return a symbol that the last row does not show of a feature, uniform: int64 [B]."""
        context = batch.info["grid"].gather(3, self._places(batch, slot))[:, -1, :-1, 0]
        chance = torch.rand(len(batch), self.task.config.n_values, generator=generator,
                            device=slot.device)
        return chance.scatter(1, context, -1.0).argmax(1)

    def _places(self, batch: Batch, slot: Tensor) -> Tensor:
        """Return where the grid [B, G, G, M] shows the feature of a response token."""
        size = self.task.config.grid_size
        tokens = tokens_of(batch.info["permutations"], slot)
        return tokens[:, None, :, None].expand(-1, size, -1, 1)

    @staticmethod
    def _answer(batch: Batch, slot: Tensor) -> Tensor:
        return batch.targets.gather(1, slot[:, None])[:, 0]

    def _chosen(self, logits: Tensor, slot: Tensor) -> Tensor:
        return logits[:, -self.n_slots:].argmax(-1).gather(1, slot[:, None])[:, 0]
