"""Which codes of an instance are written, and which one is shown: a response and its keys."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from latentcode.errors import check
from latentcode.probes.interventions.bench.patch import Patch
from latentcode.probes.interventions.intervention import Intervention
from latentcode.probes.interventions.sites import Place
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs


def where(patch: Patch) -> Intervention:
    """Return the intervention that writes a source's codes where a patch of the bench writes."""
    return Intervention("interchange", patch.scope, patch.layers, heads=patch.heads,
                        renormalize=patch.renormalize)


def cells(task: Counterfactuals, patch: Patch, pairs: MinimalPairs) -> Tensor:
    """Return which codes a patch overwrites, bool [B, Q, K]: those of its scope and its keys.

    `ConfigError` for keys that the instances, or the scope, do not have.
    """
    scope = task.scope(patch.scope, pairs)
    if patch.keys is None:
        return scope
    chosen = torch.zeros(scope.shape[-1], dtype=torch.bool, device=scope.device)
    chosen[[checked_key(key, pairs) for key in patch.keys]] = True
    found, possible = scope & chosen, scope[0].any(0).nonzero().flatten().tolist()
    check(bool(found.any(2).any(1).all()), f"keys are {patch.keys}, of which scope "
          f"{patch.scope!r} has none; expected some of {possible}")
    return found


def checked_key(key: int, one: MinimalPairs) -> int:
    """Return the number of a key; `ConfigError` unless an instance has such a token."""
    n_tokens = one.bases.inputs.shape[1]
    check(key in range(n_tokens), f"key is {key}; expected 0 to {n_tokens - 1}")
    return key


def response(task: Counterfactuals, one: MinimalPairs) -> tuple[int, int]:
    """Return the query and the key of scope `pair`: the token that answers, and itself."""
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
