"""Which codes of different instances count as the same? A place is a layer, a query and a key.

Queries and keys are named by their role (`Counterfactuals.roles`), which says what a token is to
the question, and not by their position, which permutations and slots change. The places of a site
are numbered layer by layer, in each of them by `cells`: of codes role_q R + role_k, of values the
role of the key. A place holds all codes, over heads and over tokens of the same roles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from torch import Tensor

from latentcode.probes.interventions.sites import Place

ATTRIBUTED = ("code", "value")
"""Sites that can be attributed to."""


def cells(site: str, role: Tensor, n_roles: int) -> Tensor:
    """Return the cell of each code [B, Q, K], or of each value [B, K], from the roles [B, T]."""
    return role[:, :, None] * n_roles + role[:, None] if site == "code" else role


def n_cells(site: str, n_roles: int) -> int:
    """Return how many places of a site a layer has."""
    return n_roles * n_roles if site == "code" else n_roles


def by_cell(site: str, x: Tensor, cell: Tensor, n: int) -> Tensor:
    """Return the sums over the codes [B, H, Q, K] or values [B, K, H, d] of each cell: [B, H, n].
    """
    each = x.flatten(2) if site == "code" else x.sum(-1).transpose(1, 2)
    index = cell.flatten(1)[:, None].expand_as(each)
    return each.new_zeros(*each.shape[:2], n).scatter_add(2, index, each)


def masks(
    site: str, layers: Sequence[int], chosen: Tensor, role: Tensor, n_roles: int
) -> Mapping[Place, Tensor]:
    """Return where chosen places lie, bool [layer, cell] of some layers: a mask per layer with any.
    """
    cell = cells(site, role, n_roles)
    return {(site, layer): of_layer[cell][:, None] if site == "code"
            else of_layer[cell][..., None, None]
            for layer, of_layer in zip(layers, chosen, strict=True) if bool(of_layer.any())}


def named(site: str, roles: Sequence[str], layers: Sequence[int]) -> pd.DataFrame:
    """Return `site`, `layer`, `query` and `key` of every place, in order; a value has no query."""
    if site == "code":
        rows = [(site, layer, query, key)
                for layer in layers for query in roles for key in roles]
    else:
        rows = [(site, layer, "", key) for layer in layers for key in roles]
    return pd.DataFrame(rows, columns=["site", "layer", "query", "key"])
