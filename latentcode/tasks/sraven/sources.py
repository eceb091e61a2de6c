"""What a base would be with another rule, other operands or another context.

All of these change one feature, that of a response token, or all the others, and keep where the
tokens of every feature lie.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from latentcode.config import SravenConfig
from latentcode.tasks.batch import Batch
from latentcode.tasks.sraven.rules import (
    DIFFERENCE,
    DISTRIBUTE,
    RULES,
    STEPS,
    SUM,
    complete,
    random_permutations,
    sample_features,
)
from latentcode.tasks.sraven.task import aligned, permute_features, rules_shown, tokenize, tokens_of

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
