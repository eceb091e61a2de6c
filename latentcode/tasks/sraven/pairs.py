"""Pairs of the context: what a finished row is, a response that is given. Needs no torch."""

from __future__ import annotations

from latentcode.config import SravenConfig
from latentcode.tasks.pairs import Pair


def context_pairs(config: SravenConfig) -> tuple[Pair, ...]:
    """Return a pair per finished row: the last token of its last panel attending to itself.

    That token shows the feature of the last response token in a row whose rule can be read off.
    """
    last = config.grid_size
    return tuple(Pair(f"row{row}.panel{last}->row{row}.panel{last}",
                      f"the last token of row {row}, of the context, to itself",
                      config.n_features - 1) for row in range(1, last))
