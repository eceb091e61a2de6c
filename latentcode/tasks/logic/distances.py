"""How far apart are fuzzy-logic terms and functions?

    literals     how many variables one term negates and the other does not
    functional   mean |f(x) - f'(x)| over inputs x uniform in [0, 1)

and, for functions, `edit`: how many terms only one of them has; `literals` is that of the best
matching of their terms.
"""

from __future__ import annotations

import numpy as np
import torch

from latentcode.devices import make_generator
from latentcode.tasks.distances import (
    Distances,
    check_number,
    combination_distances,
    constituent_or_combination,
    named,
)
from latentcode.tasks.logic.task import FuzzyLogic, evaluate

N_INPUTS = 4_096
"""Inputs, always the same, on which functions are compared: their mean difference is known to
about 0.003."""


def logic_distances(task: FuzzyLogic, label: str, split: str) -> Distances:
    """Return the distances of terms (`term_1`, `terms`) or of the functions of a split."""
    signs = task.signs
    check_number(len(signs), "terms")
    hamming = _cityblock(signs.double().numpy())
    if constituent_or_combination(label, task.constituent):
        terms = torch.arange(len(signs))[:, None]
        return named({"literals": hamming, "functional": _mean_difference(signs[terms])},
                     [task.term_symbols(t) for t in range(len(signs))])
    combinations = task.combinations(split)
    distances = combination_distances(combinations.numpy(), split, {"literals": hamming})
    return named({**distances, "functional": _mean_difference(signs[combinations])},
                 [task.combination_symbols(row) for row in combinations.tolist()])


def _mean_difference(signs: torch.Tensor) -> np.ndarray:
    """Return mean_x |f_i(x) - f_j(x)| of functions with signs [N, K, L], float64 [N, N]."""
    n_variables = signs.shape[-1]
    inputs = torch.rand(N_INPUTS, n_variables, dtype=torch.float64,
                        generator=make_generator(0, "inputs that compare functions"))
    values = torch.cat([evaluate(some, inputs.expand(len(some), -1, -1))
                        for some in signs.split(64)]).numpy()  # [N, inputs]
    return _cityblock(values) / N_INPUTS


def _cityblock(points: np.ndarray) -> np.ndarray:
    """Return sum_d |x_id - x_jd| of points [N, D], float64 [N, N]."""
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(points, points, "cityblock"))
