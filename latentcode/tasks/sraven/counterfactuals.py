"""What would another rule answer on the same row? The minimal pairs of SRAVEN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.errors import check, check_choice
from latentcode.tasks.base import Batch, at, one_of
from latentcode.tasks.counterfactuals import (
    OTHERS,
    ChosenPairs,
    MinimalPairs,
    all_differ,
    code_mask,
    first_to_differ,
    row_mask,
    symbol_outcomes,
)
from latentcode.tasks.sraven.task import (
    DIFFERENCE,
    DISTRIBUTE,
    RULES,
    STEPS,
    SUM,
    Sraven,
    aligned,
    complete,
    permute_features,
    random_permutations,
    rules_shown,
    sample_features,
    tokenize,
    tokens_of,
)

TRIES = 16
"""Operands that are drawn for a base before it is given up."""


class SravenCounterfactuals(ChosenPairs):
    """The first rows of one feature, rewritten under another rule; the last row is untouched.

    With a, b the symbols that the last row shows of the feature, rule B answers (modulo K)

        constant b;  progression by d: b + d;  sum a + b;  difference a - b
        distribute-three: the third symbol, which the rewritten rows supply (only for a != b)

    factorial  draw last rows that both rules could have generated (`natural_pairs`), so that every
               source is a *natural* problem, and draw the sources of `OTHERS`: x = (a, b) are the
               operands, the other features the rest. Instances of which no response token has a
               rule with a natural pair do not count

    Without it, a row that was drawn under rule A need not obey rule B (a constant row has a = b):
    the source is a problem that no rule generates as a whole, and what its answer should be is
    known all the same. So pairs are kept where the model gives that answer (`right`).
    """

    constituents = RULES
    task: Sraven
    exclusive = True
    symbolic = True
    scopes = ("pair", "pairs", "row", "feature", "everything")
    places = ("context", "operands", "response")
    about_places: Mapping[str, str] = {
        "context": "the first rows, of which the rule can be inferred",
        "operands": "what the last row shows",
        "response": "the panel to be answered, where the answer is read"}

    def __init__(self, task: Sraven, factorial: bool = True) -> None:
        self.task, self.factorial = task, factorial
        self.base_labels, self.source_labels = RULES, RULES
        self.n_slots = self.n_read = task.config.n_features
        self.n_values, self.grid_size = task.config.n_values, task.config.grid_size
        self.chance = 1.0 / self.n_values
        self.lacks = {"permuted": "a matrix has no examples whose values could be permuted"}
        if self.n_slots == 1:
            self.lacks["elsewhere"] = "with one feature there is no other response token"

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.n_values)))

    def between(
        self, base_labels: Sequence[str] = RULES, source_labels: Sequence[str] = RULES
    ) -> SravenCounterfactuals:
        """Return the factorial of bases with some rules, and of sources with some.

        Problems are drawn until one has such a base: `TRIES` times, and one that has none then does
        not count. `ConfigError` where no source would be natural.
        """
        for name, labels in (("base_labels", base_labels), ("source_labels", source_labels)):
            for label in labels:
                check_choice(name, label, RULES)
        restricted = SravenCounterfactuals(self.task)
        restricted.base_labels, restricted.source_labels = tuple(base_labels), tuple(source_labels)
        known = [f"{RULES[a]} and {RULES[b]}" for a, b in natural_pairs().nonzero().tolist()]
        check(bool(restricted._pairs(None).any()), f"no natural source has a rule of "
              f"{source_labels} where its base has one of {base_labels}; expected some of: "
              f"{', '.join(known)}")
        return restricted

    @property
    def unrestricted(self) -> SravenCounterfactuals:
        whole = (self.base_labels, self.source_labels) == (RULES, RULES)
        return self if whole else SravenCounterfactuals(self.task, factorial=False)

    def _pairs(self, device: torch.device | None) -> Tensor:
        """Return which rules of bases have which of sources, bool [8, 8]."""
        if self.unrestricted is self:
            return natural_pairs(device)
        base, source = (torch.tensor([rule in labels for rule in RULES], device=device)
                        for labels in (self.base_labels, self.source_labels))
        return natural_pairs(device) & base[:, None] & source

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n bases, and for each a response token and another rule, both uniform.

        Of a factorial: among the tokens and rules that have a natural pair.
        """
        device = generator.device
        if self.unrestricted is self:
            bases = self.task.sample(split, n, generator)
        else:
            drawn = self.task.sample(split, TRIES * n, generator)
            possible = self._pairs(device).any(1)[rules_shown(drawn)].any(1)
            first = possible.view(TRIES, n).long().argmax(0)
            bases = drawn[first * n + torch.arange(n, device=device)]
        if self.factorial:
            return self._natural(bases, generator)
        slot = torch.randint(self.n_slots, (n,), generator=generator, device=device)
        other = torch.randint(1, len(RULES), (n,), generator=generator, device=device)
        return self._minimal(bases, slot, (at(rules_shown(bases), slot) + other) % len(RULES),
                             generator)

    def _natural(self, batch: Batch, generator: torch.Generator) -> MinimalPairs:
        """Return the sources of bases whose last row is drawn anew, so that it fits them."""
        pairs, rules = self._pairs(generator.device), rules_shown(batch)
        slot = one_of(pairs.any(1)[rules], generator)
        base_label = at(rules, slot)
        target = one_of(pairs[base_label], generator)
        x, other = (self._draw_operands(base_label, target, TRIES, generator) for _ in range(2))
        x, other = first_to_differ(x, other, self._candidates(x, other, base_label, target))
        # Distribute-three, where every token has it, keeps its last row.
        x = torch.where((base_label == DISTRIBUTE)[:, None], operands_of(batch, slot), x)
        bases, _ = self._rewritten(self._with_operands(batch, slot, x), slot, base_label,
                                   at(batch.targets, slot), generator)
        sources = self._with_others(self._minimal(bases, slot, target, generator), other, generator)
        return replace(sources, counts=sources.counts & pairs[base_label, target])

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        pairs = self._minimal(batch, which, target, generator)
        drawn = self._draw_operands(pairs.base_label, target, TRIES, generator)
        x = operands_of(batch, which)[:, None].expand_as(drawn)
        _, other = first_to_differ(x, drawn, self._candidates(x, drawn, pairs.base_label, target))
        # A given row need not fit the target's rule: what counts is that of the minimal pair.
        return replace(self._with_others(pairs, other, generator), counts=pairs.counts)

    def _minimal(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        base_label = at(rules_shown(batch), which)
        third = self._third(batch, which, generator)
        sources, possible = self._rewritten(batch, which, target, third, generator)
        same, _ = self._rewritten(batch, which, base_label, at(batch.targets, which), generator)
        differ = (sources.targets != batch.targets).any(1)
        return MinimalPairs(batch, sources, same, which, base_label, target, possible & differ)

    def _with_others(
        self, pairs: MinimalPairs, operands: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        """Add the sources of a factorial; `operands` are x' [B, G - 1]."""
        batch, slot = pairs.bases, pairs.slot
        context, elsewhere = (
            self.task.sample(batch.split, len(batch), generator) for _ in range(2))
        context = context[_of_another_combination(context, pairs)]
        others: dict[str, Batch] = {}
        for name in OTHERS:
            source = self._with_operands(batch, slot, operands) if "operands" in name else batch
            if "rest" in name:
                source = self._in_context(source, context, slot)
            rule = pairs.source_label if "operation" in name else pairs.base_label
            if name == "unrelated":
                taken = F.one_hot(torch.stack([pairs.base_label, pairs.source_label]),
                                  len(RULES)).sum(0).bool()
                taken[:, DISTRIBUTE] = True
                rule = one_of(~taken, generator)
                x = self._draw_operands(rule, torch.full_like(rule, SUM), 1, generator)[:, 0]
                source = self._with_operands(self._in_context(batch, elsewhere, slot), slot, x)
            third = self._third(source, slot, generator)
            others[name], _ = self._rewritten(source, slot, rule, third, generator)
        candidates = self._candidates(operands_of(batch, slot)[:, None], operands[:, None],
                                      pairs.base_label, pairs.source_label)[:, 0]
        return replace(pairs, others=others, candidates=candidates,
                       counts=pairs.counts & all_differ(candidates))

    def _candidates(self, x: Tensor, other: Tensor, base_label: Tensor, target: Tensor) -> Tensor:
        """Return A(x), B(x), A(x'), B(x') of operands [B, N, G - 1] each: float64 [B, N, 4].

        NaN with distribute-three, whose answer hangs on the other rows.
        """
        # A grid of one row: its first row is its last.
        answers = [complete(F.pad(operands, (0, 1))[..., None, :], self.n_values)[1]
                   for operands in (x, other)]  # [B, N, 8]
        four = torch.stack([at(of_rules.movedim(-1, 1), rule)
                            for of_rules in answers for rule in (base_label, target)], -1)
        defined = (base_label != DISTRIBUTE) & (target != DISTRIBUTE)
        return torch.where(defined[:, None, None], four.double(), torch.nan)

    def _draw_operands(
        self, first: Tensor, second: Tensor, tries: int, generator: torch.Generator
    ) -> Tensor:
        """Draw last rows' operands x that fit two rules [B] each: int64 [B, tries, G - 1], uniform.

        Where no row fits both (`natural_pairs`), they need not fit either.
        """
        columns, device = self.grid_size - 1, first.device
        drawn = torch.randint(self.n_values, (len(first), tries, columns), generator=generator,
                              device=device)
        progression = torch.minimum(first, second)
        is_step = (progression < len(STEPS)) & (torch.maximum(first, second) >= len(STEPS))
        along = steps_of(progression)[:, None] * torch.arange(columns, device=device)
        row = (drawn[..., :1] + along[:, None]) % self.n_values
        return torch.where(is_step[:, None, None], row, drawn)

    def _third(self, batch: Batch, slot: Tensor, generator: torch.Generator) -> Tensor:
        """Return a symbol that the last row does not show of a feature, uniform: int64 [B]."""
        chance = torch.rand(len(batch), self.n_values, generator=generator, device=slot.device)
        return chance.scatter(1, operands_of(batch, slot), -1.0).argmax(1)

    def _with_grid(self, batch: Batch, grid: Tensor, **info: Tensor) -> Batch:
        return replace(batch, inputs=tokenize(grid, self.n_values), targets=grid[:, -1, -1],
                       info={**batch.info, **info, "grid": grid})

    def _with_operands(self, batch: Batch, slot: Tensor, operands: Tensor) -> Batch:
        """Return the batch with other operands [B, G - 1] of a feature; its answer stays."""
        feature = feature_of(batch, slot).clone()
        feature[:, -1, :-1] = operands
        return self._with_grid(batch, batch.info["grid"].scatter(
            3, places_of(batch, slot), feature[..., None]))

    def _rewritten(
        self, batch: Batch, slot: Tensor, rule: Tensor, third: Tensor, generator: torch.Generator
    ) -> tuple[Batch, Tensor]:
        """Return the batch with the first rows of a feature redrawn, and where that is possible.

        The target of the feature becomes the answer of `rule`; that of distribute-three is `third`,
        which the rows then hold beside the symbols of the last row.
        """
        size, feature = self.grid_size, feature_of(batch, slot)
        fresh = sample_features(rule, self.n_values, size, generator)
        symbols = torch.cat([feature[:, -1, :-1], third[:, None]], 1)
        orders = random_permutations((len(batch), size), size, generator)
        arranged = symbols[:, None].expand(-1, size, -1).gather(2, orders)
        is_arranged = rule == DISTRIBUTE
        fresh = torch.where(is_arranged[:, None, None], arranged, fresh)
        feature = torch.cat([fresh[:, :-1], feature[:, -1:]], 1)
        _, answers = complete(feature, self.n_values)
        feature[:, -1, -1] = at(answers, rule)
        rules = batch.info["rules"].scatter(
            1, at(batch.info["permutations"][:, -1], slot)[:, None], rule[:, None])
        changed = self._with_grid(batch, batch.info["grid"].scatter(
            3, places_of(batch, slot), feature[..., None]), rules=rules)
        return changed, ~is_arranged | _distinct(symbols)

    def _in_context(self, batch: Batch, fresh: Batch, slot: Tensor) -> Batch:
        """Return the batch with all features but one of another batch, where its tokens are."""
        permutations = batch.info["permutations"]
        here = F.one_hot(slot, self.n_slots).bool()
        kept, taken = (aligned(b.info["grid"], b.info["permutations"]) for b in (batch, fresh))
        features = torch.where(here[:, None, None], kept, taken)  # as the response's tokens lie
        back = permutations[:, -1].argsort(-1)[:, None].expand_as(permutations)
        grid = permute_features(features, back.gather(2, permutations))
        shown = torch.where(here, rules_shown(batch), rules_shown(fresh))
        rules = torch.empty_like(shown).scatter(1, permutations[:, -1], shown)
        return self._with_grid(batch, grid, rules=rules)

    def held(self, batch: Batch) -> Tensor:
        """Return the rule of each response token, int64 [B, M]."""
        return rules_shown(batch)

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        """Return every rule but the response token's own, bool [B, 8]."""
        return ~F.one_hot(at(rules_shown(batch), which), len(RULES)).bool()

    def membership(self, batch: Batch) -> Tensor:
        """Return which rule each response token has, bool [B, M, 8]."""
        return F.one_hot(rules_shown(batch), len(RULES)).bool()

    def answers(self, pairs: MinimalPairs) -> Tensor:
        """Return the symbol that each rule puts into the last row, float64 [B, 8].

        That of distribute-three is NaN but for a base that has the rule, or whose source has it.
        """
        batch, slot = pairs.bases, pairs.slot
        _, symbols = complete(feature_of(batch, slot), self.n_values)
        answers = symbols.double()
        supplied = pairs.counts & (pairs.source_label == DISTRIBUTE)
        answers[:, DISTRIBUTE] = torch.where(supplied, at(pairs.sources.targets, slot), torch.nan)
        return answers.scatter(
            1, pairs.base_label[:, None], at(batch.targets, slot)[:, None].double())

    def natural(self, batch: Batch, slot: Tensor) -> Tensor:
        """Return whether a row of the feature's rule can begin with its operands, bool [B]."""
        rule, operands = at(rules_shown(batch), slot), operands_of(batch, slot)
        along = (operands.diff(dim=1) - steps_of(rule)[:, None]) % self.n_values == 0
        return torch.where(rule < len(STEPS), along.all(1),
                           (rule != DISTRIBUTE) | _distinct(operands))

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes those of a feature hold, bool [B, Q, K].

        elsewhere  of the next response token, which is another feature
        """
        slot = (pairs.slot + 1) % self.n_slots if elsewhere else pairs.slot
        size, n_tokens = self.grid_size, pairs.bases.inputs.shape[1]
        tokens = tokens_of(pairs.bases.info["permutations"], slot)  # [B, G]
        panels = torch.arange(size * size, device=slot.device).view(size, size)
        places = panels * self.n_slots + tokens[:, None]  # [B, row, column]
        response = places[:, -1, -1]
        if name == "feature":
            return row_mask(places.flatten(1), n_tokens)
        if name == "row":
            return row_mask(response[:, None], n_tokens)
        keys = response[:, None] if name == "pair" else places[:, -1]
        return code_mask(response, keys, n_tokens)

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return the roles of tokens, a panel and a feature: `row1.panel2 own`, int64 [B, T].

        `own` is the feature that is asked about, `other 1` that of the next response token, and
        so on, wherever the permutations of a base put them.
        """
        size, permutations = self.grid_size, pairs.bases.info["permutations"]
        response = permutations[:, -1:].argsort(-1).expand_as(permutations)
        feature = (response.gather(2, permutations) - pairs.slot[:, None, None]) % self.n_slots
        panels = torch.arange(size * size, device=feature.device).view(size, size, 1)
        names = ("own", *(f"other {i}" for i in range(1, self.n_slots)))
        return (tuple(f"row{row}.panel{column} {name}" for row in range(1, size + 1)
                      for column in range(1, size + 1) for name in names),
                (panels * self.n_slots + feature[:, None]).flatten(1))

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the response token, one of the last M: int64 [B], from the end."""
        return pairs.slot - self.n_slots

    def right(self, pairs: MinimalPairs, logits: Tensor, name: str) -> Tensor:
        """Return where the answer at the response token is right, bool [B]."""
        says = at(logits, self.answer_token(pairs)).argmax(-1)
        return at(pairs.batch(name).targets, pairs.slot) == says

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what became of each answer, float [B] each: those of `symbol_outcomes`, and

        others         the answers to all other features are unchanged
        kl_others      the mean of `kl` over the other features
        """
        slot, m, token = pairs.slot, self.n_slots, self.answer_token(pairs)
        outcomes = symbol_outcomes(
            pairs, at(patched, token).argmax(-1), at(pairs.bases.targets, slot),
            at(pairs.sources.targets, slot), at(clean, token), at(patched, token))
        before, after = (F.log_softmax(logits[:, -m:].double(), -1) for logits in (clean, patched))
        divergence = (before.exp() * (before - after)).sum(-1)  # [B, M]
        here = F.one_hot(slot, m).bool()
        unchanged = patched[:, -m:].argmax(-1) == clean[:, -m:].argmax(-1)
        return {**outcomes, "others": (unchanged | here).all(1).float(),
                "kl_others": (divergence * ~here).sum(1).float() / max(m - 1, 1)}


def natural_pairs(device: torch.device | None = None) -> Tensor:
    """Return which rules have rows in common, and different answers to them: bool [8, 8].

    Sum beside constant, the progressions and difference. No other two will do: two progressions
    share no row, and the difference is the same for all rows of a progression, so that the
    operands do not matter. Distribute-three is left out, as its answer hangs on the other rows.
    """
    rules = torch.arange(len(RULES), device=device)
    beside_sum = (rules < len(STEPS)) | (rules == DIFFERENCE)
    pairs = (rules == SUM)[:, None] & beside_sum
    return pairs | pairs.T


def steps_of(rule: Tensor) -> Tensor:
    """Return the step per column of constant and progressions; of other rules it means nothing."""
    # Made on the device: copies from the host would wait.
    steps = torch.stack([torch.full_like(rule[0], step) for step in STEPS])
    return steps[rule.clamp_max(len(STEPS) - 1)]


def places_of(batch: Batch, slot: Tensor) -> Tensor:
    """Return where the grid [B, G, G, M] shows the feature of a response token: [B, G, G, 1]."""
    tokens = tokens_of(batch.info["permutations"], slot)
    return tokens[:, None, :, None].expand(-1, batch.info["grid"].shape[1], -1, 1)


def feature_of(batch: Batch, slot: Tensor) -> Tensor:
    """Return the symbols of the feature of a response token, int64 [B, G, G]."""
    return batch.info["grid"].gather(3, places_of(batch, slot))[..., 0]


def operands_of(batch: Batch, slot: Tensor) -> Tensor:
    """Return what the last row shows of the feature of a response token, int64 [B, G - 1]."""
    return feature_of(batch, slot)[:, -1, :-1]


def _distinct(symbols: Tensor) -> Tensor:
    """Return where symbols [B, n] all differ, bool [B]."""
    return (symbols.sort(1).values.diff(dim=1) != 0).all(1)


def _of_another_combination(fresh: Batch, pairs: MinimalPairs) -> Tensor:
    """Return for each pair a fresh problem whose other features are another problem's: int64 [B].

    Beside the rule of the base, and beside that of its source, they make another combination than
    the base has. The first of `TRIES` from a pair's own on, or its own.
    """
    n, device = len(pairs), pairs.slot.device
    tried = (torch.arange(n, device=device) + torch.arange(TRIES, device=device)[:, None]) % n
    rules = rules_shown(fresh)[tried]  # [TRIES, B, M]
    here = F.one_hot(pairs.slot, rules.shape[-1]).bool()
    base = rules_shown(pairs.bases).sort(-1).values
    differs = torch.ones_like(tried, dtype=torch.bool)
    for rule in (pairs.base_label, pairs.source_label):
        beside = torch.where(here, rule[:, None], rules).sort(-1).values
        differs &= (beside != base).any(-1)
    return tried.gather(0, differs.long().argmax(0)[None])[0]
