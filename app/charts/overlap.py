"""Do models agree on which instances are alike? The neighbours of a code that models share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from latentcode.app.state.sidebar import AT_PLACE, Chosen
from latentcode.app.words import literal
from latentcode.codes import LatentCodes
from latentcode.probes.common.features import varies
from latentcode.probes.knn_purity.neighbours import nearest
from latentcode.probes.knn_purity.neighbours import shared_neighbours as common
from latentcode.probes.knn_purity.purity import K

SHARED = "shared neighbours"
"""Name of the colour."""
MOST = 20_000
"""Most instances of which every one's neighbours are looked for."""


def shared_neighbours(points: Sequence[np.ndarray], k: int = K) -> np.ndarray:
    """1/(M-1) sum_m |N_0(i) & N_m(i)| / k: are the neighbours of an instance its own elsewhere?

    N_m(i) are the k nearest neighbours of instance i in model m (Euclidean, itself left out).
    Neighbours that are drawn at random share k / (N - 1) on average.

    points  [N, d] of each of the M > 1 models, the same instances in the same order

    Returns float64 [N]. `ProbeError` for fewer than k + 1 instances.
    """
    first, *others = (nearest(x, k) for x in points)
    return np.asarray(np.mean([common(first, other) for other in others], axis=0))


def offered(shown: Sequence[Chosen]) -> list[str]:
    """Return the colour's name where it can be had: two models or more, all of varying codes."""
    first = shown[0].codes
    can = (len(shown) > 1 and K < len(first) <= MOST and SHARED not in first.labels
           and all(varies(chosen.points) for chosen in shown))
    return [SHARED] if can else []


def with_shared(shown: Sequence[Chosen]) -> Chosen:
    """Return the first of some models with one label more: how many neighbours others share."""
    first = shown[0]
    codes, share = first.codes, _shared(shown)
    return replace(first, codes=LatentCodes(
        codes.scores, codes.labels.assign(**{SHARED: share}), codes.pairs, codes.layers,
        codes.meta))


def sentence(shown: Sequence[Chosen]) -> str:
    """Return one line of Markdown: the mean share, and that of random neighbours.

    shown  the models, the first as `with_shared` returns it
    """
    first, *others = shown
    mean, chance = first.label(SHARED).mean(), K / (len(first.codes) - 1)
    whose = (literal(others[0].entry.key) if len(others) == 1
             else f"the others (mean over {len(others)})")
    return (f"Of the {K} nearest codes of an instance in {literal(first.entry.key)}, on average "
            f"**{mean:.1%}** are also among its {K} nearest in {whose}; of random neighbours "
            f"{chance:.1%} would be.")


@st.cache_resource(max_entries=12, show_spinner="Looking at neighbours …", hash_funcs=AT_PLACE)
def _shared(shown: Sequence[Chosen]) -> np.ndarray:
    return shared_neighbours([chosen.points for chosen in shown])
