"""Codes of texts in the plane, their colours, and the map that shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts.addresses import card_address
from latentcode.app.charts.map import Plane, colours, show_map
from latentcode.app.charts.theme import is_dark
from latentcode.app.data.projections import METHODS, laid_out
from latentcode.app.language.page import KNOWN_BY
from latentcode.app.language.pair import card
from latentcode.app.language.reading import Read
from latentcode.app.language.work import Job
from latentcode.app.state.selection import Selection
from latentcode.app.state.url import choose
from latentcode.errors import ProbeError, check
from latentcode.probes.common.statistics import varies
from latentcode.probes.heads.clusters import flat_codes, heads_of
from latentcode.probes.projection import Projection
from latentcode.tasks.text.tokens import class_of

ALL = "all"
"""The choice of the codes of all layers as one."""
METHODS_SHOWN = ("PCA", "t-SNE", "UMAP")
"""The quick one first."""
COLOURS: Mapping[str, str] = {
    "key": "is the key the first token, the query itself, or another",
    "distance": "tokens from key to query", "query class": "characters of the query's token",
    "key class": "characters of the key's token", "query token": "the most frequent ones",
    "key token": "the most frequent ones", "drawn": "how the key was drawn",
    "cluster": "k-means with 8 clusters of these codes"}
N_CLUSTERS = 8
KINDS = {"first": "first token", "self": "query itself", "other": "another token"}


def plane_name(read: Read, layer: int | None, method: str) -> str:
    """Return what a selection calls the picture that it was drawn in."""
    return f"{ALL if layer is None else layer}!{method}!{len(read.codes)}"


def plane_of(read: Read, layer: int | None, method: str) -> Projection:
    """Lay out the codes of a layer, or of all; `ProbeError` where there is nothing to lay out."""
    points = flat_codes(read.codes, layer)
    check(varies(points), "the codes of all pairs are the same there; there is nothing to lay out",
          ProbeError)
    return laid_out(points, METHODS[method])


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=KNOWN_BY)
def label_of(job: Job, read: Read, colour: str, layer: int | None) -> pd.Series:
    """Return what colours the pairs, one of `COLOURS`."""
    labels = read.codes.labels
    if colour == "key":
        found: Any = labels["kind"].map(KINDS)
    elif colour == "distance":
        found = _in_bins(labels["distance"].to_numpy())
    elif colour.endswith("class"):
        found = labels[f"{colour.split()[0]}_token"].map(class_of)
    elif colour.endswith("token"):
        found = labels[f"{colour.split()[0]}_token"].map(lambda piece: piece.strip() or repr(piece))
    elif colour == "drawn":
        found = labels["drawn"]
    else:
        found = np.array([str(c) for c in _clusters(flat_codes(read.codes, layer))], dtype=object)
    return pd.Series(np.asarray(found, dtype=object), name=colour, dtype=object)


def _clusters(points: np.ndarray) -> np.ndarray:
    """Return the cluster of each code [N, d], numbered from the largest."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        found = KMeans(min(N_CLUSTERS, len(points)), n_init=2, random_state=0).fit_predict(points)
    largest = np.argsort(-np.bincount(found), kind="stable")
    return np.argsort(largest)[found]


class _Bin(str):
    """The name of a bin, which sorts by its number."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return int(self.split()[0]) < int(other.split()[0])


def _in_bins(distance: np.ndarray) -> np.ndarray:
    """Return the bin of each distance: 0, 1, 2 to 3, 4 to 7 and so on."""
    power = np.log2(np.maximum(distance, 1)).astype(int)
    names = np.array([_Bin("0"), _Bin("1"), *(_Bin(f"{2**k} to {2**(k + 1) - 1}") for k in range(
        1, power.max(initial=0) + 1))], dtype=object)
    return names[np.where(distance == 0, 0, power + 1)]


def sampled(read: Read, n_asked: int) -> str:
    """Say which pairs are drawn, of how many."""
    drawn = read.codes.labels["drawn"].value_counts().to_dict()
    texts = (f"{read.n_texts:,} texts" if read.whole or read.n_texts >= n_asked
             else f"the {read.n_texts:,} texts read so far, of {n_asked:,}")
    return (f"{len(read.codes):,} of the {read.n_pairs:,} pairs of a query and a key in {texts}: "
            f"queries drawn at random; keys in {drawn.get('uniform', 0):,} at random up to the "
            f"query, in {drawn.get('attended', 0):,} in proportion to the attention of all heads, "
            "without the first token.")


def pairs_csv(
    read: Read, layer: int | None, plane: Projection, label: pd.Series, selected: np.ndarray | None
) -> bytes:
    """Return a line per pair: its labels, where it is drawn, and its code, a column a head."""
    columns = [f"L{of}H{head}" for of, head in heads_of(read.codes, layer)]
    return pd.concat([
        read.codes.labels, pd.DataFrame({
            f"colour: {label.name}": label.to_numpy(), "x": plane.coordinates[:, 0],
            "y": plane.coordinates[:, 1],
            "selected": False if selected is None else selected}),
        pd.DataFrame(flat_codes(read.codes, layer).astype(np.float32), columns=columns),
    ], axis=1).to_csv(index=False).encode()


def choose_plane(layers: Sequence[int]) -> tuple[int | None, str, str]:
    """Return the layer, None for all, the projection and the colour."""
    options: list[str | int] = [ALL, *layers]
    chosen = choose("Layer", options, key="lm_layer", where=st.sidebar,
                    help="The code of a pair is its attention at all heads of this layer, or of "
                         "all layers.")
    method = choose("Projection", METHODS_SHOWN, key="lm_plane", form="buttons",
                    where=st.sidebar, help="PCA is there at once; t-SNE and UMAP take a while.")
    colour = choose("Colour by", list(COLOURS), key="lm_colour", where=st.sidebar,
                    help="; ".join(f"{name}: {text}" for name, text in COLOURS.items()))
    return None if chosen == ALL else int(chosen), method, colour


def show_pairs(
    job: Job, read: Read, plane: Projection, layer: int | None, method: str, colour: str,
    note: Callable[[Selection], None], **settings: Any,
) -> None:
    """Show the pairs that were read of a model.

    note  called with what is clicked or outlined; the rest is as of `show_map`
    """
    shades = colours(label_of(job, read, colour, layer), title=colour, dark=is_dark())
    cards = card_address(("language", read.stamp), lambda row: card(job, read, row))
    show_map([Plane(plane_name(read, layer, method), "", plane.coordinates, cards=cards)],
             shades, note, key="map", dark=is_dark(), label=colour, **settings)
