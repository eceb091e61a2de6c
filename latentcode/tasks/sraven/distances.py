"""How far apart are SRAVEN's rules, and the multisets of them?

Over all contexts of a last row, each equally likely, with K symbols:

    functional   how often the two rules give different answers
    circular     how many steps apart their answers are on the circle of K symbols

and, for combinations, `edit`: how many rules only one of them has; the other two are those of
the best matching of their rules.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np

from latentcode.tasks.distances import (
    Distances,
    combination_distances,
    constituent_or_combination,
    named,
)
from latentcode.tasks.sraven.rules import DISTRIBUTE, RULES, STEPS
from latentcode.tasks.sraven.task import Sraven

MOST_CONTEXTS = 2**17
"""Where there are more contexts than this, that many random ones, always the same, stand for
all of them."""


def sraven_distances(task: Sraven, label: str, split: str) -> Distances:
    """Return the distances of rules (`rule`, `rules`) or of the combinations of a split."""
    functional, circular = answer_distances(task.config.n_values, task.config.grid_size)
    costs = {"functional": functional, "circular": circular}
    if constituent_or_combination(label, task.constituent):
        return named(costs, RULES)
    rows = task.combinations(split).numpy()
    return named(combination_distances(rows, split, costs),
                 [task.combination_symbols(row) for row in rows.tolist()])


def answer_distances(n_values: int, grid_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how often, and by how many steps, the answers of two rules differ, each [8, 8].

    The symbol that completes distribute-three is any of those that the context lacks, all equally
    likely; contexts that repeat a symbol, which it does not allow, do not count for it.
    """
    answers, valid = _answers(n_values, grid_size)
    steps = np.abs(np.subtract.outer(np.arange(n_values), np.arange(n_values)))
    steps = np.minimum(steps, n_values - steps).astype(np.float64)
    functional, circular = np.zeros((2, len(RULES), len(RULES)))
    for a, b in combinations(range(len(RULES)), 2):
        both = valid[a] & valid[b]
        together = np.einsum("nu,nv->uv", answers[a, both], answers[b, both]) / both.sum()
        functional[a, b] = functional[b, a] = 1.0 - np.trace(together)
        circular[a, b] = circular[b, a] = (together * steps).sum()
    return functional, circular


def _answers(n_values: int, grid_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return P(answer | context, rule) [rule, context, symbol] and where the rule is defined."""
    total = n_values ** (grid_size - 1)
    if total <= MOST_CONTEXTS:
        context = np.array(list(product(range(n_values), repeat=grid_size - 1)))
    else:
        context = np.random.default_rng(0).integers(
            n_values, size=(MOST_CONTEXTS, grid_size - 1))
    summed = context.sum(axis=1)
    symbols = [(context[:, -1] + step) % n_values for step in STEPS]
    symbols += [summed % n_values, (2 * context[:, 0] - summed) % n_values]
    answers = np.zeros((len(RULES), len(context), n_values))
    for rule, symbol in enumerate(symbols):
        answers[rule, np.arange(len(context)), symbol] = 1.0
    absent = (context[:, :, None] != np.arange(n_values)).all(axis=1)
    answers[DISTRIBUTE] = absent / absent.sum(axis=1, keepdims=True)
    valid = np.ones((len(RULES), len(context)), dtype=bool)
    valid[DISTRIBUTE] = absent.sum(axis=1) == n_values - (grid_size - 1)
    return answers, valid
