"""How far apart are two tasks? Several answers, because the choice matters.

Constituents (rules, terms) are compared by what they do, combinations by their constituents:

    edit(A, B)         how many constituents only one of the two multisets has
    matched(A, B; c)   min over one-to-one matchings of the mean cost c(a, b) of the matched

`edit` knows identity alone: all different constituents are equally far apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

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


def distances_of(
    label: str, constituent: str, names: Sequence[str], costs: Mapping[str, np.ndarray],
    combinations: np.ndarray, name: Callable[[list[int]], str],
    direct: Callable[[np.ndarray], Mapping[str, np.ndarray]] = lambda combinations: {},
) -> Distances:
    """Return the distances of constituents (`rule`, `rule_2`, `rules`) or of combinations.

    names         of all constituents
    costs         of constituents [C, C], which match those of combinations
    combinations  int [N, M], those of a split
    name          names a combination
    direct        of combinations, those that hang on the whole: of constituents, which are
                  combinations of one, they are compared, too

    `UnknownNameError` for other labels, `ConfigError` for more values than can be compared.
    """
    if label == COMBINATION:
        check_number(len(combinations), "combinations")
        tables = {"edit": edit_distance(combinations), **{
            kind: matched_distance(combinations, cost) for kind, cost in costs.items()}}
        names = [name(row) for row in combinations.tolist()]
    elif re.fullmatch(rf"{constituent}(s|_\d+)?", label):
        check_number(len(names), f"{constituent}s")
        combinations, tables = np.arange(len(names))[:, None], dict(costs)
    else:
        raise UnknownNameError("label with task distances", label,
                               (constituent, f"{constituent}s", COMBINATION))
    tables |= direct(combinations)
    return {kind: pd.DataFrame(table, index=list(names), columns=list(names))
            for kind, table in tables.items()}


def check_number(n: int, what: str) -> None:
    """Raise `ConfigError` for more values than can be compared with each other."""
    check(n <= MOST_VALUES, f"there are {n:,} {what}; expected at most {MOST_VALUES:,}, whose "
          "distances from each other can be listed")


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
