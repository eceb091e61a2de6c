"""Splits by combination: disjoint, and every constituent of a held-out one is trained on.

A combination is a sorted tuple of constituents (terms or rules). `split_combinations` *builds*
the split instead of drawing until one fits: a seeded random cover, which is as small as any
cover can be, goes into training first; what remains is dealt at random.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from latentcode.errors import SplitError, check

Combination = tuple[int, ...]


def random_cover(
    n_constituents: int, size: int, distinct: bool, rng: np.random.Generator
) -> list[Combination]:
    """Return ceil(n / size) combinations in which every constituent occurs.

    No smaller set of combinations can cover n constituents. The last one is filled up with
    random constituents, all different where `distinct` asks for it.
    """
    order = [int(c) for c in rng.permutation(n_constituents)]
    cover = []
    for start in range(0, n_constituents, size):
        chunk = order[start:start + size]
        missing = size - len(chunk)
        if missing:
            pool = [c for c in range(n_constituents) if not (distinct and c in chunk)]
            chunk += [int(c) for c in rng.choice(pool, size=missing, replace=not distinct)]
        cover.append(tuple(sorted(chunk)))
    return cover


def fraction_of(count: int, total: int) -> float:
    """Return a short decimal fraction f with int(total * f) == count, for 0 <= count < total.

    count / total itself need not be one: int(100 * 0.29) is 28.
    """
    unit: int = 10 ** len(str(total))
    fractions = (n / unit for n in itertools.count(count * unit // total))
    return next(f for f in fractions if int(total * f) >= count)


def split_combinations(
    combinations: Sequence[Combination],
    n_constituents: int,
    ood_fraction: float,
    seed: int,
    distinct: bool,
) -> tuple[list[Combination], list[Combination]]:
    """Split combinations into (train, ood), both in sorted order, for any possible fraction.

    `int(len(combinations) * ood_fraction)` of them are held out, as in the official code. Every
    constituent occurs in `train`, so every constituent of an `ood` combination was trained on.
    `SplitError` names the largest fraction that leaves room for that.
    """
    check(0.0 <= ood_fraction < 1.0,
          f"ood_fraction is {ood_fraction!r}; expected 0 <= fraction < 1", SplitError)
    rng = np.random.default_rng(seed)
    total = len(combinations)
    n_ood = int(total * ood_fraction)
    cover = set(random_cover(n_constituents, len(combinations[0]), distinct, rng))
    most = total - len(cover)
    check(n_ood <= most,
          f"ood_fraction {ood_fraction} holds out {n_ood} of {total} combinations and leaves "
          f"{total - n_ood}, but {len(cover)} are needed for every constituent to occur in "
          f"training; the largest possible fraction here is {fraction_of(most, total)}, which "
          f"holds out {most}", SplitError)
    rest = [c for c in combinations if c not in cover]
    held_out = {rest[i] for i in rng.permutation(len(rest))[:n_ood]}
    train = [c for c in combinations if c not in held_out]
    return train, [c for c in combinations if c in held_out]


def explicit_split(
    combinations: Sequence[Combination], held_out: Sequence[Sequence[int]]
) -> tuple[list[Combination], list[Combination]]:
    """Split by a given list of held-out combinations, such as the official one of a seed.

    `SplitError` when one of them does not exist, or holds a constituent that no training
    combination has.
    """
    known = set(combinations)
    held = {tuple(sorted(int(c) for c in h)) for h in held_out}
    for combination in sorted(held):
        check(combination in known, f"held-out combination {combination} does not exist in this "
              f"task, which has {len(known)} combinations of known constituents", SplitError)
    train = [c for c in combinations if c not in held]
    lost = {c for h in held for c in h} - {c for t in train for c in t}
    check(not lost, f"constituents {sorted(lost)} of the held-out combinations occur in no "
          "training combination", SplitError)
    return train, [c for c in combinations if c in held]
