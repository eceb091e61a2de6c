"""Codes of texts in the plane, their colours, and the map that shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.charts.addresses import card_address
from latentcode.app.charts.map import Pin, colours, show_map
from latentcode.app.charts.map import Plane as Drawn
from latentcode.app.charts.theme import is_dark
from latentcode.app.data.loaded import progress_bar
from latentcode.app.data.projections import METHODS
from latentcode.app.language.page import KNOWN_BY
from latentcode.app.language.pair import card
from latentcode.app.language.reading import Read
from latentcode.app.language.work import Job
from latentcode.app.state.selection import Selection
from latentcode.app.state.url import choose
from latentcode.errors import ProbeError, check
from latentcode.probes.common.statistics import varies
from latentcode.probes.heads.clusters import flat_codes, heads_of
from latentcode.probes.projection import CachedProjection, quality
from latentcode.tasks.text.tokens import class_of

ALL = "all"
"""The choice of the codes of all layers as one."""
NEAREST = 5
"""Codes whose mean place in the plane another code takes, where a method has no map."""
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


@dataclass(frozen=True)
class Plane:
    """Codes of pairs in the plane.

    points   float64 [N, d], the codes
    at       float64 [N, 2]
    method   of `METHODS_SHOWN`
    trust    trustworthiness, or NaN
    axes     of PCA [d, 2], around `middle` [d]; None of other methods
    """

    points: np.ndarray
    at: np.ndarray
    method: str
    trust: float
    middle: np.ndarray | None = None
    axes: np.ndarray | None = None

    def place(self, codes: np.ndarray) -> np.ndarray:
        """Return where other codes [M, d] lie: by the map of PCA, else at the mean place of the
        nearest codes."""
        if self.axes is not None:
            placed: np.ndarray = (codes - self.middle) @ self.axes
            return placed
        found = np.empty((len(codes), 2))
        for i, code in enumerate(codes):
            distance = ((self.points - code) ** 2).sum(1)
            found[i] = self.at[np.argpartition(distance, min(NEAREST, len(distance)) - 1)[
                :NEAREST]].mean(0)
        return found

    @property
    def how_placed(self) -> str:
        """Say how other codes are placed."""
        return ("placed by the axes of the PCA" if self.axes is not None else
                f"placed amid their {NEAREST} nearest codes, since {self.method} has no map for "
                "new ones")


def plane_name(read: Read, layer: int | None, method: str) -> str:
    """Return what a selection calls the picture that it was drawn in."""
    return f"{ALL if layer is None else layer}!{method}!{len(read.codes)}"


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=KNOWN_BY)
def plane_of(job: Job, read: Read, layer: int | None, method: str) -> Plane:
    """Lay out the codes of a layer, or of all; `ProbeError` where there is nothing to lay out."""
    points = flat_codes(read.codes, layer)
    check(varies(points), "the codes of all pairs are the same there; there is nothing to lay out",
          ProbeError)
    if method == "PCA":
        return _pca(points)
    with progress_bar(f"Laying out {len(points):,} codes …") as report:
        found = CachedProjection(points, METHODS[method], progress=report).projection
    return Plane(points, found.coordinates, method, found.quality.get("trustworthiness", np.nan))


def _pca(points: np.ndarray) -> Plane:
    middle = points.mean(0)
    _, axes = np.linalg.eigh((points - middle).T @ (points - middle))
    two = axes[:, :-3:-1] if axes.shape[1] > 1 else np.hstack([axes, np.zeros_like(axes)])
    # Of either sign, the one with which the largest entry is positive.
    two = two * np.sign(two[np.abs(two).argmax(0), np.arange(2)] + 1e-300)
    at = (points - middle) @ two
    trust = quality(points, at, "euclidean", 0).get("trustworthiness", np.nan)
    return Plane(points, at, "PCA", trust, middle, two)


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
    read: Read, layer: int | None, plane: Plane, label: pd.Series, selected: np.ndarray | None
) -> bytes:
    """Return a line per pair: its labels, where it is drawn, and its code, a column a head."""
    columns = [f"L{of}H{head}" for of, head in heads_of(read.codes, layer)]
    return pd.concat([
        read.codes.labels, pd.DataFrame({
            f"colour: {label.name}": label.to_numpy(), "x": plane.at[:, 0], "y": plane.at[:, 1],
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
    job: Job, read: Read, plane: Plane, layer: int | None, method: str, colour: str,
    note: Callable[[Selection], None], *,
    height: int, alt: str, selection: Selection | None = None, selected: np.ndarray | None = None,
    instance: int | None = None, pins: Sequence[Pin] = (),
) -> None:
    """Show the pairs that were read of a model.

    note  called with what is clicked or outlined; the rest is as of `show_map`
    """
    shades = colours(label_of(job, read, colour, layer), title=colour, dark=is_dark())
    cards = card_address(("language", read.stamp), lambda row: card(job, read, row))
    show_map(
        [Drawn(plane_name(read, layer, method), "", plane.at, cards=cards)],
        shades, note, key="map", dark=is_dark(), label=colour,
        selection=selection or Selection(), selected=selected, instance=instance, height=height,
        alt=alt, pins=pins)
