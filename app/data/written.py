"""What a model answers to a problem with the mean of some codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from latentcode.app.data.benches import DRAWN, OpenBench
from latentcode.probes.interventions.outcomes import Answers, Cells

if TYPE_CHECKING:
    from torch import Tensor

PAIR, ROW, CONTEXT = "this pair", "its row", "the context"
CONTROLS = 16
"""Random ones that are written beside what is asked for."""
MOST = 128
"""Problems over which a mean of many codes is taken."""
POOL = 1_024
"""Problems out of which random ones are drawn."""


def cells(
    open_: OpenBench, instance: int, layer: int, query: int, key: int
) -> dict[str, Cells]:
    """Return the codes of a layer that can be written together, by name."""
    with open_.alone():
        bench = open_.bench
        every = tuple(range(bench.batch.inputs.shape[1]))
        found = {PAIR: Cells(layer, (query,), (key,)), ROW: Cells(layer, (query,), every)}
        context = open_.task.places(bench.rows([instance])).get("context")
        # In a text, what stands at a token has no meaning that texts share.
        if context is not None and open_.kind != "place":
            found[CONTEXT] = Cells(layer, tuple(context[0].tolist()), every)
    return found


def position(open_: OpenBench, instance: int, pair: str) -> tuple[int, int]:
    """Return the query and key of a named pair in a problem."""
    with open_.alone():
        queries, keys = open_.task.positions([pair], open_.bench.rows([instance]))
    return int(queries[0, 0]), int(keys[0, 0])


def mean_code(codes: np.ndarray, selected: np.ndarray) -> Tensor:
    """Return the mean of some codes [N, H] of a pair, and of as many random ones: [1 + n, H, 1, 1].
    """
    import torch

    rng, n = np.random.default_rng(0), int(selected.sum())
    found = np.stack([codes[selected].mean(0), *(
        codes[rng.permutation(len(codes))[:n]].mean(0) for _ in range(CONTROLS))])
    return torch.from_numpy(found)[:, :, None, None]


def means(open_: OpenBench, at: Cells, rows: Sequence[int]) -> Tensor:
    """Return the mean codes of some problems, and of as many random ones: [1 + n, H, q, k].

    rows  numbers of problems; of more than `MOST`, some are drawn
    """
    import torch

    rng = np.random.default_rng(0)
    chosen = rng.permutation(np.asarray(rows))[:MOST]
    with open_.alone():
        own = open_.bench.codes_at(chosen.tolist(), at).mean(0)
    pool = _pool(open_, at)
    return torch.stack([own, *(pool[torch.from_numpy(
        rng.permutation(len(pool))[:len(chosen)])].mean(0) for _ in range(CONTROLS))])


@st.cache_resource(max_entries=4, show_spinner=False, hash_funcs={
    OpenBench: lambda open_: open_.weights, Cells: repr})
def _pool(open_: OpenBench, at: Cells) -> Tensor:
    """Return the codes of random problems of a split, [N, H, q, k]."""
    drawn = np.random.default_rng(1).permutation(min(len(open_.bench), DRAWN))[:POOL]
    with open_.alone():
        return open_.bench.codes_at(drawn.tolist(), at)


def answers(open_: OpenBench, instance: int, at: Cells, codes: Tensor) -> Answers:
    """Return what a model answers to a problem with each of some codes."""
    with open_.alone():
        return open_.bench.written(instance, at, codes)
