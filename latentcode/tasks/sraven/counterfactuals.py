"""What would another rule answer on the same row? The minimal pairs of SRAVEN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.config import SravenConfig
from latentcode.errors import check, check_choice
from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import (
    OTHERS,
    ChosenPairs,
    MinimalPairs,
    all_differ,
    classes_of,
    code_mask,
    first_to_differ,
    row_mask,
    token_mask,
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


class SravenCounterfactuals(ChosenPairs):
    """The first rows of one feature, rewritten under another rule; the last row is untouched.

    With a, b the symbols that the last row shows of the feature, rule B answers (modulo K)

        constant b;  progression by d: b + d;  sum a + b;  difference a - b
        distribute-three: the third symbol, which the rewritten rows supply (only for a != b)

    factorial  draw last rows that both rules could have generated (sum beside constant, the
               progressions and difference: `natural_pairs`), so that every source is a *natural*
               problem, and draw the sources of `OTHERS`: x = (a, b) are the operands, the other
               features the rest. Instances of which no response token has a rule with a
               natural pair do not count

    Without it, a row that was drawn under rule A need not obey rule B (a constant row has a = b):
    the source is a problem that no rule generates as a whole, and what its answer should be is
    known all the same. So pairs are kept where the model gives that answer (`right`); of eight
    symbols a model hits one in eight by luck.
    """

    constituents = RULES
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
        self.chance = 1.0 / task.config.n_values
        self.lacks = {"permuted": "a matrix has no examples whose values could be permuted"}
        if self.n_slots == 1:
            self.lacks["elsewhere"] = "with one feature there is no other response token"

    def between(
        self, base_labels: Sequence[str] = RULES, source_labels: Sequence[str] = RULES
    ) -> SravenCounterfactuals:
        """Return the factorial of bases with some rules, and of sources with some.

        Where not all are asked for, problems are drawn until one has such a base: `TRIES` times,
        and one that has none then does not count. `ConfigError` where no source would be natural.
        """
        for name, labels in (("base_labels", base_labels), ("source_labels", source_labels)):
            for label in labels:
                check_choice(name, label, RULES)
        found = SravenCounterfactuals(self.task)
        found.base_labels, found.source_labels = tuple(base_labels), tuple(source_labels)
        known = [f"{RULES[a]} and {RULES[b]}" for a, b in natural_pairs().nonzero().tolist()]
        check(bool(found._pairs(None).any()), f"no natural source has a rule of {source_labels} "
              f"where its base has one of {base_labels}; expected some of: {', '.join(known)}")
        return found

    @property
    def unrestricted(self) -> SravenCounterfactuals:
        """Minimal pairs of any problems, as the task draws them: what means are taken over."""
        whole = (self.base_labels, self.source_labels) == (RULES, RULES)
        return self if whole else SravenCounterfactuals(self.task, factorial=False)

    def _pairs(self, device: torch.device | None) -> Tensor:
        """Return which rules of bases have which of sources, bool [8, 8]."""
        if self.unrestricted is self:
            return natural_pairs(device)
        ours, theirs = (torch.tensor([rule in labels for rule in RULES], device=device)
                        for labels in (self.base_labels, self.source_labels))
        return natural_pairs(device) & ours[:, None] & theirs

    def sample(self, split: str, n: int, generator: torch.Generator) -> MinimalPairs:
        """Draw n bases, and for each a response token and another rule, both uniform.

        Of a factorial: among the tokens and rules that have a natural pair.
        """
        bases = self._drawn(split, n, generator)
        if self.factorial:
            return self._natural(bases, generator)
        device = generator.device
        slot = torch.randint(self.n_slots, (n,), generator=generator, device=device)
        base_label = rules_shown(bases).gather(1, slot[:, None])[:, 0]
        other = torch.randint(1, len(RULES), (n,), generator=generator, device=device)
        target = (base_label + other) % len(RULES)
        return self._minimal(bases, slot, target, generator)

    def _drawn(self, split: str, n: int, generator: torch.Generator) -> Batch:
        """Draw n problems, of restricted pairs those that have a base, where one is found."""
        if self.unrestricted is self:
            return self.task.sample(split, n, generator)
        drawn = self.task.sample(split, TRIES * n, generator)
        possible = self._pairs(generator.device).any(1)[rules_shown(drawn)].any(1)
        first = possible.view(TRIES, n).long().argmax(0)
        return drawn[first * n + torch.arange(n, device=generator.device)]

    def _natural(self, batch: Batch, generator: torch.Generator) -> MinimalPairs:
        """Return the sources of bases whose last row is drawn anew, so that it fits them."""
        config, device = self.task.config, generator.device

        def one_of(possible: Tensor) -> Tensor:
            chance = torch.rand(possible.shape, generator=generator, device=device)
            return torch.where(possible, chance, -1.0).argmax(1)

        pairs, rules = self._pairs(device), rules_shown(batch)
        slot = one_of(pairs.any(1)[rules])
        base_label = rules.gather(1, slot[:, None])[:, 0]
        target = one_of(pairs[base_label])
        x, x_other = (draw_operands(base_label, target, config, TRIES, generator) for _ in range(2))
        x, x_other = first_to_differ(x, x_other, self._candidates(x, x_other, base_label, target))
        # Distribute-three, where every token has it, keeps its last row.
        x = torch.where((base_label == DISTRIBUTE)[:, None], operands_of(batch, slot), x)
        bases, _ = rewritten(with_operands(batch, slot, x, config), slot, base_label,
                                 self._answer(batch, slot), config, generator)
        found = self._with_others(self._minimal(bases, slot, target, generator), x_other,
                                  generator)
        return replace(found, counts=found.counts & pairs[base_label, target])

    def _with_target(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        pairs = self._minimal(batch, which, target, generator)
        drawn = draw_operands(pairs.base_label, target, self.task.config, TRIES, generator)
        own = operands_of(batch, which)[:, None].expand_as(drawn)
        _, other = first_to_differ(own, drawn, self._candidates(
            own, drawn, pairs.base_label, target))
        # A given row need not fit the target's rule: what counts is that of the minimal pair.
        return replace(self._with_others(pairs, other, generator), counts=pairs.counts)

    def _minimal(
        self, batch: Batch, which: Tensor, target: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        config = self.task.config
        base_label = rules_shown(batch).gather(1, which[:, None])[:, 0]
        third = self._third(batch, which, generator)
        sources, possible = rewritten(batch, which, target, third, config, generator)
        own = self._answer(batch, which)
        same, _ = rewritten(batch, which, base_label, own, config, generator)
        differ = (sources.targets != batch.targets).any(1)
        return MinimalPairs(batch, sources, same, which, base_label, target, possible & differ)

    def _with_others(
        self, pairs: MinimalPairs, operands: Tensor, generator: torch.Generator
    ) -> MinimalPairs:
        """Add the sources of a factorial; `operands` are x' [B, G - 1]."""
        config, batch, slot = self.task.config, pairs.bases, pairs.slot
        fresh = [self.task.sample(batch.split, len(batch), generator) for _ in range(2)]
        fresh[0] = fresh[0][_of_another_combination(fresh[0], pairs)]
        others: dict[str, Batch] = {}
        for name in OTHERS:
            source = with_operands(batch, slot, operands, config) if "operands" in name else batch
            if "rest" in name:
                source = in_context(source, fresh[0], slot, config)
            rule = pairs.source_label if "operation" in name else pairs.base_label
            if name == "unrelated":
                both = torch.stack([pairs.base_label, pairs.source_label])
                taken = F.one_hot(both, len(RULES)).sum(0)
                taken[:, DISTRIBUTE] = 1
                chance = torch.rand(taken.shape, generator=generator, device=slot.device)
                rule = torch.where(taken.bool(), -1.0, chance).argmax(1)
                x = draw_operands(rule, torch.full_like(rule, SUM), config, 1, generator)[:, 0]
                source = with_operands(in_context(batch, fresh[1], slot, config), slot, x, config)
            third = self._third(source, slot, generator)
            others[name], _ = rewritten(source, slot, rule, third, config, generator)
        own = operands_of(batch, slot)
        candidates = self._candidates(own[:, None], operands[:, None], pairs.base_label,
                                      pairs.source_label)[:, 0]
        return replace(pairs, others=others, candidates=candidates,
                       counts=pairs.counts & all_differ(candidates))

    def _candidates(self, x: Tensor, other: Tensor, base_label: Tensor, target: Tensor) -> Tensor:
        """Return A(x), B(x), A(x'), B(x') of operands [B, N, G - 1] each: float64 [B, N, 4]."""
        n_values = self.task.config.n_values
        answers = torch.stack([answers_to(operands, rule, n_values)
                               for operands in (x, other) for rule in (base_label, target)], -1)
        defined = (base_label != DISTRIBUTE) & (target != DISTRIBUTE)
        return torch.where(defined[:, None, None], answers.double(), torch.nan)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The numbers of symbols."""
        return tuple(map(str, range(self.task.config.n_values)))

    def held(self, batch: Batch) -> Tensor:
        """Return the rule of each response token, int64 [B, M]."""
        return rules_shown(batch)

    def choices(self, batch: Batch, which: Tensor) -> Tensor:
        """Return every rule but the response token's own, bool [B, 8]."""
        own = rules_shown(batch).gather(1, which[:, None])
        return ~F.one_hot(own[:, 0], len(RULES)).bool()

    def answers(self, pairs: MinimalPairs) -> Tensor:
        """Return the symbol that each rule puts into the last row, float64 [B, 8].

        The answer of distribute-three hangs on the other rows: NaN but for a base that has
        the rule, or whose source has it.
        """
        batch, slot = pairs.bases, pairs.slot
        _, answers = complete(feature_of(batch, slot), self.task.config.n_values)
        answers = answers.double()
        third = torch.where(pairs.counts, self._answer(pairs.sources, slot), torch.nan)
        answers[:, DISTRIBUTE] = torch.where(pairs.source_label == DISTRIBUTE, third, torch.nan)
        own = self._answer(batch, slot)[:, None].double()
        return answers.scatter(1, pairs.base_label[:, None], own)

    def answer_token(self, pairs: MinimalPairs) -> Tensor:
        """Return the response token, one of the last M: int64 [B], from the end."""
        return pairs.slot - self.n_slots

    def membership(self, batch: Batch) -> Tensor:
        """Return which rule each response token has, bool [B, M, 8]."""
        return F.one_hot(rules_shown(batch), len(RULES)).bool()

    def own_scope(self, name: str, pairs: MinimalPairs, *, elsewhere: bool = False) -> Tensor:
        """Return which codes those of a feature hold, bool [B, Q, K].

        elsewhere  of the next response token, which is another feature
        """
        slot = (pairs.slot + 1) % self.n_slots if elsewhere else pairs.slot
        config, batch = self.task.config, pairs.bases
        n_tokens, size = batch.inputs.shape[1], config.grid_size
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

    def place(self, name: str, pairs: MinimalPairs) -> Tensor:
        """Return the tokens of the first rows, of the last row's given panels, or of its last."""
        return token_mask(self.task, name, pairs.bases)

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        """Return the roles of tokens, a panel and a feature: `row1.panel2 own`, int64 [B, T].

        `own` is the feature that is asked about, `other 1` that of the next response token, and
        so on, wherever the permutations of a base put them.
        """
        size, permutations = self.task.config.grid_size, pairs.bases.info["permutations"]
        response = permutations[:, -1:].argsort(-1).expand_as(permutations)
        feature = (response.gather(2, permutations) - pairs.slot[:, None, None]) % self.n_slots
        panels = torch.arange(size * size, device=feature.device).view(size, size, 1)
        names = ("own", *(f"other {i}" for i in range(1, self.n_slots)))
        return (tuple(f"row{row}.panel{column} {name}" for row in range(1, size + 1)
                      for column in range(1, size + 1) for name in names),
                (panels * self.n_slots + feature[:, None]).flatten(1))

    def natural(self, batch: Batch, slot: Tensor) -> Tensor:
        """Return whether the last row could be one of the feature's rule, bool [B]."""
        rule = rules_shown(batch).gather(1, slot[:, None])[:, 0]
        return fits(operands_of(batch, slot), rule, self.task.config.n_values)

    def right(self, pairs: MinimalPairs, logits: Tensor, of: str) -> Tensor:
        """Return where the answer at the response token is right, bool [B]."""
        return self._answer(pairs.batch(of), pairs.slot) == self._chosen(logits, pairs.slot)

    def outcomes(
        self, pairs: MinimalPairs, clean: Tensor, source: Tensor, patched: Tensor
    ) -> Mapping[str, Tensor]:
        """Return what became of each answer, float [B] each.

        flip, unchanged  the answer is the source's, is the base's
        base, operation, operands, answer, else  of a factorial: whose answer it is (`CLASSES`)
        others         the answers to all other features are unchanged
        p_source_answer, p_base_answer  probability of the source's answer, and of the base's
        kl             KL(clean || patched) at the response token, in nats
        kl_others      the mean of the same over the other features
        """
        slot, m = pairs.slot, self.n_slots
        ours, theirs = (self._answer(b, slot) for b in (pairs.bases, pairs.sources))
        chosen = self._chosen(patched, slot)
        before, after = (F.log_softmax(logits[:, -m:].double(), -1)
                         for logits in (clean, patched))
        divergence = (before.exp() * (before - after)).sum(-1)  # [B, M]
        here = F.one_hot(slot, m).bool()
        unchanged = patched[:, -m:].argmax(-1) == clean[:, -m:].argmax(-1)
        instance = torch.arange(len(slot), device=slot.device)
        probability = after.exp()[instance, slot]
        classes: dict[str, Tensor] = {}
        if pairs.candidates is not None:
            classes = classes_of(chosen, pairs.candidates)
        return {
            **classes, "flip": (chosen == theirs).float(), "unchanged": (chosen == ours).float(),
            "others": (unchanged | here).all(1).float(),
            "p_source_answer": probability.gather(1, theirs[:, None])[:, 0].float(),
            "p_base_answer": probability.gather(1, ours[:, None])[:, 0].float(),
            "kl": divergence[instance, slot].float(),
            "kl_others": (divergence * ~here).sum(1).float() / max(m - 1, 1)}

    def _third(self, batch: Batch, slot: Tensor, generator: torch.Generator) -> Tensor:
        """Return a symbol that the last row does not show of a feature, uniform: int64 [B]."""
        chance = torch.rand(len(batch), self.task.config.n_values, generator=generator,
                            device=slot.device)
        return chance.scatter(1, operands_of(batch, slot), -1.0).argmax(1)

    @staticmethod
    def _answer(batch: Batch, slot: Tensor) -> Tensor:
        return batch.targets.gather(1, slot[:, None])[:, 0]

    def _chosen(self, logits: Tensor, slot: Tensor) -> Tensor:
        return logits[:, -self.n_slots:].argmax(-1).gather(1, slot[:, None])[:, 0]


def _of_another_combination(fresh: Batch, pairs: MinimalPairs) -> Tensor:
    """Return for each pair a fresh problem whose other features are another problem's: int64 [B].

    Beside the rule of the base, and beside that of its source, they make another combination than
    the base has. The first one from a pair's own on; its own where the next `TRIES` have none, as
    where problems have a single feature.
    """
    n = len(pairs)
    tried = (torch.arange(n, device=pairs.slot.device)
             + torch.arange(TRIES, device=pairs.slot.device)[:, None]) % n  # [TRIES, B]
    rules = rules_shown(fresh)[tried]  # [TRIES, B, M]
    here = F.one_hot(pairs.slot, rules.shape[-1]).bool()
    own = rules_shown(pairs.bases).sort(-1).values
    differs = torch.ones_like(tried, dtype=torch.bool)
    for rule in (pairs.base_label, pairs.source_label):
        beside = torch.where(here, rule[:, None], rules).sort(-1).values
        differs &= (beside != own).any(-1)
    return tried.gather(0, differs.long().argmax(0)[None])[0]


TRIES = 16
"""Operands that are drawn for a base before it is given up."""


def natural_pairs(device: torch.device | None = None) -> Tensor:
    """Which rules have rows in common, and different answers to them? bool [8, 8], symmetric.

    Sum beside constant, the progressions and difference. No other two will do: two progressions
    share no row, and the difference is the same for all rows of a progression, so that the
    operands do not matter. Distribute-three is left out: which operation it is depends on the
    other rows.
    """
    rules = torch.arange(len(RULES), device=device)
    beside_sum = (rules < len(STEPS)) | (rules == DIFFERENCE)
    pairs = (rules == SUM)[:, None] & beside_sum
    return pairs | pairs.T


def draw_operands(
    first: Tensor, second: Tensor, config: SravenConfig, tries: int, generator: torch.Generator
) -> Tensor:
    """Draw last rows' operands x that fit two rules [B] each: int64 [B, tries, G - 1], uniform.

    Where no row fits both (`natural_pairs`), they need not fit either.
    """
    n, columns = len(first), config.grid_size - 1
    drawn = torch.randint(config.n_values, (n, tries, columns), generator=generator,
                          device=first.device)
    progression = torch.minimum(first, second)
    is_step = (progression < len(STEPS)) & (torch.maximum(first, second) >= len(STEPS))
    along = steps_of(progression)[:, None] * torch.arange(columns, device=first.device)
    row = (drawn[..., :1] + along[:, None]) % config.n_values
    return torch.where(is_step[:, None, None], row, drawn)


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


def answers_to(operands: Tensor, rule: Tensor, n_values: int) -> Tensor:
    """Return what a rule [B] answers to operands [B, ..., G - 1]: int64 [B, ...].

    That of distribute-three, which hangs on the other rows, means nothing here.
    """
    # A grid of one row: its first row is its last.
    grids = F.pad(operands, (0, 1))[..., None, :]
    _, answers = complete(grids, n_values)  # [B, ..., 8]
    index = rule.view(-1, *[1] * (answers.ndim - 1)).expand(*answers.shape[:-1], 1)
    return answers.gather(-1, index)[..., 0]


def fits(operands: Tensor, rule: Tensor, n_values: int) -> Tensor:
    """Return whether a row of a rule [B] can begin with operands [B, G - 1]: bool [B].

    Progressions step by theirs, distribute-three shows distinct symbols, and any operands can be
    summed or subtracted.
    """
    along = ((operands.diff(dim=1) - steps_of(rule)[:, None]) % n_values == 0).all(1)
    distinct = (operands.sort(1).values.diff(dim=1) != 0).all(1)
    return torch.where(rule < len(STEPS), along, (rule != DISTRIBUTE) | distinct)


def with_operands(batch: Batch, slot: Tensor, operands: Tensor, config: SravenConfig) -> Batch:
    """Return the batch with other operands [B, G - 1] of a feature; its answer stays as it was."""
    feature = feature_of(batch, slot).clone()
    feature[:, -1, :-1] = operands
    return _with_feature(batch, slot, feature, config)


def rewritten(
    batch: Batch, slot: Tensor, rule: Tensor, third: Tensor, config: SravenConfig,
    generator: torch.Generator,
) -> tuple[Batch, Tensor]:
    """Return the batch with the first rows of a feature redrawn, and where that is possible.

    The target of the feature becomes the answer of `rule`; that of distribute-three is `third`,
    which the rows then hold beside the symbols of the last row.
    """
    size = config.grid_size
    feature = feature_of(batch, slot)
    fresh = sample_features(rule, config.n_values, size, generator)
    symbols = torch.cat([feature[:, -1, :-1], third[:, None]], 1)
    orders = random_permutations((len(batch), size), size, generator)
    arranged = symbols[:, None].expand(-1, size, -1).gather(2, orders)
    fresh = torch.where((rule == DISTRIBUTE)[:, None, None], arranged, fresh)
    in_order = symbols.sort(1).values
    distinct = (in_order.diff(dim=1) != 0).all(1)
    feature = torch.cat([fresh[:, :-1], feature[:, -1:]], 1)
    _, answers = complete(feature, config.n_values)
    feature[:, -1, -1] = answers.gather(1, rule[:, None])[:, 0]
    rules = batch.info["rules"].clone()
    shown = batch.info["permutations"][:, -1].gather(1, slot[:, None])
    rules.scatter_(1, shown, rule[:, None])
    changed = replace(batch, info={**batch.info, "rules": rules})
    return _with_feature(changed, slot, feature, config), (rule != DISTRIBUTE) | distinct


def in_context(batch: Batch, fresh: Batch, slot: Tensor, config: SravenConfig) -> Batch:
    """Return the batch with all features but one taken from another batch, where its tokens are."""
    permutations = batch.info["permutations"]
    here = F.one_hot(slot, config.n_features).bool()
    ours, theirs = (aligned(b.info["grid"], b.info["permutations"]) for b in (batch, fresh))
    features = torch.where(here[:, None, None], ours, theirs)  # as the response's tokens lie
    back = permutations[:, -1].argsort(-1)[:, None].expand_as(permutations).gather(2, permutations)
    grid = permute_features(features, back)
    shown = torch.where(here, rules_shown(batch), rules_shown(fresh))
    rules = torch.empty_like(shown).scatter(1, permutations[:, -1], shown)
    return _with_grid(replace(batch, info={**batch.info, "rules": rules}), grid, config)


def _with_feature(batch: Batch, slot: Tensor, feature: Tensor, config: SravenConfig) -> Batch:
    grid = batch.info["grid"].scatter(3, places_of(batch, slot), feature[..., None])
    return _with_grid(batch, grid, config)


def _with_grid(batch: Batch, grid: Tensor, config: SravenConfig) -> Batch:
    return replace(batch, inputs=tokenize(grid, config.n_values), targets=grid[:, -1, -1],
                   info={**batch.info, "grid": grid})
