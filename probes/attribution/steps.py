"""Estimates of attribution: the number that is differentiated, and the places.

Which codes of different instances count as the same? A place is a layer, a query and a key.

Queries and keys are named by their role (`Counterfactuals.roles`), which says what a token is to
the question, and not by their position, which permutations and slots change. The places of a site
are numbered layer by layer, in each of them by `cells`: of codes role_q R + role_k, of values the
role of the key. A place holds all codes, over heads and over tokens of the same roles.

How far is an answer from the source's? The number that is differentiated, and where it leads.

Of answers that are

    symbols   log p(source's answer) - log p(base's answer), a difference of two logits
    numbers   sign(source's answer - base's answer) times the answer
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from torch import Tensor

from latentcode.answers import CLASSES
from latentcode.errors import ConfigError, check, check_choice
from latentcode.models.patched.sites import Place
from latentcode.tasks.counterfactuals import OTHERS, Counterfactuals, MinimalPairs

ATTRIBUTED = ("code", "value")
"""Sites that can be attributed to."""
SOURCES: Mapping[str, tuple[str, int]] = {"interchange": ("sources", 1), **{
    name: (name, ("operation" in name) + 2 * ("operands" in name))
    for name in OTHERS if "operation" in name or "operands" in name}}
"""Sources whose answer differs from the base's: their batch of `MinimalPairs`, and which of the
candidates is their answer."""


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


def default_source(task: Counterfactuals) -> str:
    """Return the source whose answer tells most: of a factorial the one that differs in both."""
    return "operation+operands" if task.factorial else "interchange"


def rate_of(task: Counterfactuals, source: str) -> str:
    """Return the outcome that says that an answer is the source's, one of `CLASSES` or `flip`.

    `ConfigError` for a source that the task lacks, or without an answer of its own.
    """
    if source in SOURCES and SOURCES[source][0] in task.lacks:
        raise ConfigError(f"source {source!r} cannot be written: {task.lacks[source]}")
    check_choice("source", source, [name for name in SOURCES if name not in task.lacks]
                 if task.factorial else ("interchange",))
    return list(CLASSES)[SOURCES[source][1]] if task.factorial else "flip"


def answers(task: Counterfactuals, pairs: MinimalPairs, source: str) -> tuple[Tensor, Tensor]:
    """Return the answers of the bases and of their sources, float64 [B] each."""
    if pairs.candidates is not None:
        return pairs.candidates[:, 0], pairs.candidates[:, SOURCES[source][1]]
    return task.two_answers(pairs)


def known_answers(
    task: Counterfactuals, pairs: MinimalPairs, source: str, clean: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what `answers` does; where the instance's is not defined, what the model says.

    clean  the logits of the instances. `ConfigError` where that of the source is not defined.
    """
    own, theirs = answers(task, pairs, source)
    check(not bool(theirs.isnan().any()), f"what is answered to source {source!r} is the model's "
          "own affair in these pairs; expected a source whose answer is known, of "
          f"{', '.join(SOURCES)}", ConfigError)
    if task.symbolic:
        said = task.outputs(task.answer_token(pairs), clean).argmax(-1)
        own = torch.where(own.isnan(), said.to(own.dtype), own)
    return own, theirs


def step(
    task: Counterfactuals, pairs: MinimalPairs, own: Tensor, theirs: Tensor, logits: Tensor
) -> Tensor:
    """Return how far answers went from the bases' (own) to the sources' (theirs): float64 [B].

    In nats where answers are symbols, in the answer's own unit where they are numbers.
    """
    outputs = task.outputs(task.answer_token(pairs), logits)
    if not task.symbolic:
        return (theirs - own).sign() * outputs[:, 0]
    # No probability is so small that its logarithm would be infinite.
    logs = outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log()
    to, since = (logs.gather(1, symbol.long()[:, None])[:, 0] for symbol in (theirs, own))
    return to - since
