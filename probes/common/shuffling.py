"""Shuffled labels: the null hypothesis that codes tell nothing of a label, combinations aside.

Instances of one combination depend on each other, and labels often depend on the combination. A
shuffle therefore keeps what a label has to do with combinations, and takes away what it has to do
with codes:

1. The labels of whole combinations change places among combinations of equal size. A label that is
   constant within every combination moves with it whatever the sizes.
2. Labels within each combination change places.

Under the null hypothesis all these arrangements are equally likely. The share of a class is kept
over combinations, and over instances where the sizes agree.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

N_SHUFFLES = 10
"""Times that labels are shuffled unless the caller says otherwise."""
LEAST_ARRANGEMENTS = 20
"""With fewer distinct arrangements, the true one among them, there is no null: 1 in 20 is 5 %."""


def no_null(label: str) -> str:
    """Return the sentence that says that a label has no null."""
    return (f"Label {label}: shuffled labels are no control, for fewer than {LEAST_ARRANGEMENTS} "
            "arrangements of its values over the combinations differ.")


def has_null(y: np.ndarray, groups: np.ndarray) -> bool:
    """Whether enough arrangements of classes [N] or indicators [N, class] differ for a null."""
    kind = np.unique(y, axis=0, return_inverse=True)[1].ravel()
    return _log_arrangements(kind, groups) >= np.log(LEAST_ARRANGEMENTS) - 1e-9


def shuffled_classes(
    kind: np.ndarray, groups: np.ndarray, rng: np.random.Generator, times: int
) -> np.ndarray:
    """Return classes int [N] of instances in combinations int [N], shuffled: [times, N].

    [0, N] where the label has no null.
    """
    if not has_null(kind, groups):
        return np.empty((0, len(kind)), dtype=kind.dtype)
    of_combination, combination = _constant_classes(kind, groups)
    if of_combination is not None:
        return np.stack([rng.permutation(of_combination)[combination] for _ in range(times)])
    shuffled = np.empty((times, len(kind)), dtype=kind.dtype)
    for same_size in _by_size(groups):
        for one in shuffled:
            one[same_size] = rng.permuted(kind[rng.permutation(same_size)], axis=1)
    return shuffled


def shuffled_labels(
    y: np.ndarray, groups: np.ndarray, rng: np.random.Generator, times: int
) -> np.ndarray:
    """Return indicators bool [N, class], shuffled as `shuffled_classes`: [times or 0, N, class]."""
    kinds, kind = np.unique(y, axis=0, return_inverse=True)
    return np.asarray(kinds[shuffled_classes(kind.ravel(), groups, rng, times)])


def rows_of_others(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return, for each instance, one of another combination, int [N].

    What is read there tells nothing of the instance, and depends on the combination as much as
    what is read here. A combination takes the instances of one other in random order, some twice
    where these are fewer; where there is one combination, its own.
    """
    _, combination = np.unique(groups, return_inverse=True)
    members = [rng.permutation(np.flatnonzero(combination == one))
               for one in range(combination.max(initial=-1) + 1)]
    order = rng.permutation(len(members))
    rows = np.arange(len(groups))
    for mine, other in zip(order, np.roll(order, 1), strict=True):
        rows[members[mine]] = np.resize(members[other], len(members[mine]))
    return rows


def _constant_classes(
    kind: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the class of each combination, None unless it has a single one, and the combination
    of each instance."""
    _, first, combination = np.unique(groups, return_index=True, return_inverse=True)
    constant = bool((kind == kind[first][combination]).all())
    return kind[first] if constant else None, combination


def _by_size(groups: np.ndarray) -> list[np.ndarray]:
    """Return the instances of the combinations of each size, int [combination, size] each."""
    _, combination, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.argsort(combination, kind="stable")
    size = sizes[combination[order]]
    return [order[size == each].reshape(-1, each) for each in np.unique(sizes)]


def _log_arrangements(kind: np.ndarray, groups: np.ndarray) -> float:
    """Return the logarithm of how many distinct arrangements of labels shuffles may give.

    Of m combinations of which k_v have the labels v (up to their order), m! / prod_v k_v! orders
    differ; of n instances of which n_c have class c, n! / prod_c n_c!.
    """
    of_combination, _ = _constant_classes(kind, groups)
    if of_combination is not None:
        return float(_log_multinomial(np.unique(of_combination, return_counts=True)[1]))
    total = 0.0
    for same_size in _by_size(groups):
        labels = np.sort(kind[same_size], axis=1)
        total += float(_log_multinomial(np.unique(labels, axis=0, return_counts=True)[1]))
        counts = (labels[:, :, None] == np.unique(labels)).sum(axis=1)
        total += float(_log_multinomial(counts).sum())
    return total


def _log_multinomial(counts: np.ndarray) -> np.ndarray:
    """Return log((sum_c n_c)! / prod_c n_c!) of counts [..., c]."""
    return np.asarray(gammaln(counts.sum(axis=-1) + 1) - gammaln(counts + 1).sum(axis=-1))
