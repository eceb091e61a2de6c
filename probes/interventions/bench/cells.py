"""Which code of an instance is shown: that of the response and a key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from latentcode.errors import check
from latentcode.probes.interventions.sites import Place
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs


def checked_key(key: int, one: MinimalPairs) -> int:
    """Return the number of a key; `ConfigError` unless an instance has such a token."""
    n_tokens = one.bases.inputs.shape[1]
    check(key in range(-n_tokens, n_tokens), f"key is {key}; expected 0 to {n_tokens - 1}")
    return key % n_tokens


def response(task: Counterfactuals, one: MinimalPairs) -> tuple[int, int]:
    """Return the query and the key of scope `pair`; without one the token that answers, twice."""
    if "pair" not in task.scopes:
        query = int(task.answer_token(one)[0]) % one.bases.inputs.shape[1]
        return query, query
    query, key = task.scope("pair", one)[0].nonzero()[0].tolist()
    return query, key


def code_at(
    codes: Mapping[Place, Tensor], task: Counterfactuals, one: MinimalPairs, key: int | None
) -> np.ndarray:
    """Return the code a[:, q, k] of the response q and a key k, float [L, H].

    codes  place -> [H, Q, K], a layer after the other
    key    None: that of scope `pair`, the response itself
    """
    query, own = response(task, one)
    key = own if key is None else checked_key(key, one)
    return np.stack([code[:, query, key].float().cpu().numpy() for code in codes.values()])
