"""How far apart are two tasks? Several answers, because the choice matters.

Constituents (rules, terms) are compared by what they do, combinations by their constituents:

    edit(A, B)         how many constituents only one of the two multisets has
    matched(A, B; c)   min over one-to-one matchings of the mean cost c(a, b) of the matched

`edit` knows identity alone: all different constituents are equally far apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from latentcode.errors import UnknownNameError, check

COMBINATION = "combination"
"""The label column that names a combination."""
MOST_VALUES = 2_048
"""Values whose distances fit in memory (34 MB each) and whose best matchings take a minute or
two; 641 take some seconds."""

Distances = dict[str, pd.DataFrame]
"""Name of a distance -> [N, N], rows and columns named by the values of a label."""


def constituent_or_combination(label: str, constituent: str) -> bool:
    """Return whether a label is a constituent (True) or the combination (False).

    `rule`, `rule_2` and `rules` are constituents where `constituent` is "rule".
    `UnknownNameError` for other labels, whose values no task distance is defined on.
    """
    if label == COMBINATION:
        return False
    if re.fullmatch(rf"{constituent}(s|_\d+)?", label):
        return True
    raise UnknownNameError("label with task distances", label,
                           (constituent, f"{constituent}s", COMBINATION))


def edit_distance(combinations: np.ndarray) -> np.ndarray:
    """|A| + |B| - 2 |A ∩ B| of multisets [N, M], float64 [N, N]: 2 per constituent replaced."""
    values = np.unique(combinations)
    counts = (combinations[:, :, None] == values).sum(axis=1)  # [N, values]
    different = np.zeros((len(counts), len(counts)))
    for column in counts.T:
        different += np.abs(column[:, None] - column[None])
    return different


def matched_distance(combinations: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """min_π mean_m cost[a_m, b_π(m)] over one-to-one matchings π, float64 [N, N].

    combinations  int [N, M], indices of constituents in any order
    cost          float [constituent, constituent], symmetric, 0 on the diagonal
    """
    from scipy.optimize import linear_sum_assignment

    matched = np.zeros((len(combinations),) * 2)
    for i, j in zip(*np.triu_indices(len(combinations), k=1), strict=True):
        costs = cost[np.ix_(combinations[i], combinations[j])]
        matched[i, j] = matched[j, i] = costs[linear_sum_assignment(costs)].mean()
    return matched


def check_number(n: int, what: str) -> None:
    """Raise `ConfigError` for more values than can be compared with each other."""
    check(n <= MOST_VALUES, f"there are {n:,} {what}; expected at most {MOST_VALUES:,}, whose "
          "distances from each other can be listed")


def combination_distances(
    combinations: np.ndarray, split: str, costs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return `edit`, and `matched` with each cost, of the combinations [N, M] of a split."""
    check_number(len(combinations), f"combinations in split {split!r}")
    return {"edit": edit_distance(combinations),
            **{kind: matched_distance(combinations, cost) for kind, cost in costs.items()}}


def named(distances: dict[str, np.ndarray], names: Sequence[str]) -> Distances:
    """Return matrices [N, N] with rows and columns that carry the values of a label."""
    return {kind: pd.DataFrame(matrix, index=list(names), columns=list(names))
            for kind, matrix in distances.items()}
