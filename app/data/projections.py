"""Codes in the plane, and the labels that can colour them."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.data.loaded import progress_bar
from latentcode.codes import LatentCodes
from latentcode.codes.latent_codes import is_measurement
from latentcode.errors import ProbeError, check
from latentcode.probes.knn_purity import response_labels
from latentcode.probes.projection import CachedProjection, Projection

METHODS = {"t-SNE": "tsne", "UMAP": "umap", "PCA": "pca"}
"""Names of the projections, for people and for the library."""
MOST_LAID_OUT = {"t-SNE": 100_000, "UMAP": 100_000, "PCA": 1_000_000}
"""Most codes that a page lays out by each: more would take the others an hour."""
FEWEST = 4
"""Fewest codes that t-SNE and UMAP can lay out."""
MOST_CATEGORIES = 48
"""Labels with more values than this are not offered as colours."""
MOST_ENTRIES = 12
"""Lines of a legend: a longer one takes the place of the picture."""
VERDICTS: dict[object, str] = {0.0: "wrong", 1.0: "right"}
"""What an accuracy says of one instance."""


def laid_out(codes: np.ndarray, method: str) -> Projection:
    """Return the projection of codes [N, H], from the cache or computed with a bar on the page.

    It is kept in the session and on the disk by its codes, and not by Streamlit, which shows what a
    cached function has drawn again: no cached function draws.

    method  a value of `METHODS`. Raises `ProbeError` where the codes cannot be projected.
    """
    check(method == "pca" or len(codes) >= FEWEST, f"{len(codes)} codes are too few for this "
          f"projection; expected at least {FEWEST}, or PCA", ProbeError)
    x = np.ascontiguousarray(codes, dtype=np.float64)
    key = hashlib.sha256(x.tobytes()).hexdigest(), method
    kept: dict[tuple[str, str], Projection] = st.session_state.setdefault("planes", {})
    if key not in kept:
        with progress_bar(f"Laying out {len(x):,} codes …") as report:
            kept[key] = CachedProjection(x, method, progress=report).projection
    return kept[key]


def colour_labels(codes: LatentCodes, pair: str) -> list[str]:
    """Return the labels that points can be coloured by, each once, those that probes decode first.

    "rule" is the rule of the pair's response where there are rule_0, rule_1, ...; the column that
    it stands for with this pair has no second name.
    """
    own = response_labels(codes.labels, codes.pair(pair))
    others = [str(name) for name in codes.labels.columns if offered(codes.labels[name])]
    return [*own.values(), *(name for name in others if name not in own)]


def offered(values: pd.Series) -> bool:
    """Whether a label can colour points: measurements, and categories that can be told apart."""
    return is_measurement(values) or 1 < values.nunique() <= MOST_CATEGORIES


def in_order(values: pd.Series) -> list[object]:
    """Return the values of a category in the order of the library's figures."""
    return sorted(values.unique(), key=lambda v: (str(type(v)), v))


def value_name(label: object, value: object) -> str:
    """Return what a page calls a value of a label: "right" for an accuracy of 1, else its text."""
    scores = str(label).endswith("accuracy")
    return VERDICTS.get(value, str(value)) if scores else str(value)


class LegendEntry(NamedTuple):
    """A line of a legend: its text, and the values of the label that it stands for."""

    name: str
    values: tuple[object, ...]


def legend_entries(values: pd.Series, most: int = MOST_ENTRIES) -> list[LegendEntry]:
    """Return the lines of the legend of a category: no more than `most`, which is at least 2.

    Where there are more values, the most frequent ones have a line each, in the order of the
    library's figures, and the last line, "other (n)", stands for the n others.
    """
    ordered = in_order(values)
    named = ordered
    if len(ordered) > most:
        # A stable sort: of two equally frequent values, the first keeps its place.
        count: dict[object, int] = values.value_counts().to_dict()
        frequent = sorted(ordered, key=lambda v: -count[v])[:most - 1]
        named = [v for v in ordered if v in frequent]
    entries = [LegendEntry(value_name(values.name, v), (v,)) for v in named]
    others = tuple(v for v in ordered if v not in named)
    return [*entries, LegendEntry(f"other ({len(others)})", others)] if others else entries
