"""Any SRAVEN that is small enough to be checked instance by instance."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from latentcode.tasks.sraven.task import RULES, rule_holds


def rules_that_hold(grids: Tensor, n_values: int) -> Tensor:
    """Return which rules hold in feature grids: [..., G, G] -> bool [..., 8]."""
    return torch.stack([rule_holds(r, grids, n_values) for r in range(len(RULES))], -1)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    grid_size = draw(st.integers(2, 4))
    n_features = draw(st.integers(1, 5))
    return {
        "n_features": n_features, "grid_size": grid_size,
        "n_values": draw(st.integers(max(3, grid_size), 17)),
        "permuted": draw(st.booleans()), "rule_order": draw(st.sampled_from(["random", "sorted"])),
        "ood_fraction": 0.0 if n_features == 1 else draw(st.floats(0.0, 0.8)),
        "split_seed": draw(st.integers(0, 1000))}
