"""What is looked at: a model, a split, a layer and a pair, chosen in the sidebar of every page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.data import loaded
from latentcode.app.data.catalog import Entry
from latentcode.app.data.projections import METHODS, MOST_LAID_OUT, colour_labels, laid_out
from latentcode.app.state.messages import answering
from latentcode.app.state.selection import Picture
from latentcode.app.state.url import choose, current, put, remember, say, was_asked
from latentcode.app.words import literal
from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, check
from latentcode.probes.knn_purity import response_labels
from latentcode.probes.projection import Projection
from latentcode.tasks.pairs import Pair

SPLITS = {"ood": "held-out combinations", "test": "training combinations, fresh instances",
          "train": "training data", "unknown": "combinations of unknown terms"}
"""Splits in words."""
SHOWN = 26
"""Letters of a model's name for which the list has space; a longer one stands below it, too."""


@dataclass(frozen=True)
class Chosen:
    """Codes of a model, and the layer and pair that are looked at."""

    entry: Entry
    split: str
    layer: int
    pair: str
    codes: LatentCodes

    @property
    def key(self) -> tuple[object, ...]:
        """What the codes are known by in caches."""
        meta = self.codes.meta
        folder = (self.entry.path if self.entry.kind == "codes"
                  else loaded.stored_folder(self.entry, self.split))
        return (str(self.entry.path), self.split, len(self.codes), meta.get("run_id"),
                meta.get("step"), loaded.stamp(folder), tuple(p.name for p in self.codes.pairs))

    @property
    def place(self) -> tuple[object, ...]:
        """What the codes of the layer and pair are known by."""
        return (*self.key, self.layer, self.pair)

    @property
    def points(self) -> np.ndarray:
        """The codes of the layer and pair, [N, H]."""
        return np.asarray(self.codes.select(layer=self.layer, pair=self.pair))

    def label(self, name: str) -> pd.Series:
        """Return the values of a label; `rule` is the rule of the pair's token."""
        return self.codes.label(name, self.pair)

    def picture(
        self, method: str, *, layer: int | None = None, pair: str | None = None
    ) -> Picture:
        """Return a picture of these codes; default: of the layer and pair that are looked at."""
        return Picture(self.split, len(self.codes), method, self.layer if layer is None else layer,
                       self.pair if pair is None else pair, self.entry.key)

    def projection(self, picture: Picture) -> Projection:
        """Return the points of a picture of these codes, computed if they are not kept."""
        return laid_out(self.codes.select(layer=picture.layer, pair=picture.pair), picture.method)


AT_PLACE: dict[Any, Callable[[Any], Any]] = {Chosen: lambda chosen: chosen.place}
"""`hash_funcs` of what Streamlit keeps of the codes of a layer and pair."""
OF_PAIR: dict[Any, Callable[[Any], Any]] = {Chosen: lambda chosen: (*chosen.key, chosen.pair)}
"""The same of what is equal in all layers."""


def choose_entry(*, models_only: bool = False) -> Entry:
    """Return the model, run or codes folder that the sidebar chooses.

    A path can be typed into the list. `ArtifactError` for one that may not or cannot be opened,
    and for codes where only a model will do.
    """
    keys = [e.key for e in loaded.entries() if not models_only or e.kind != "codes"]
    # A path that was typed, or came with the URL, is an option from then on.
    before = current("model")
    was_asked("model")
    keys += [] if before is None or before in keys else [before]
    check(bool(keys), "there is nothing to show; expected a model of the zoo, or `latentcode "
          "explore FOLDER` with a folder that holds runs or codes", ArtifactError)
    put("model", before or keys[0])
    key = st.sidebar.selectbox(
        "Model", keys, key="model", accept_new_options=True,
        help="The models that come with latentcode, and the runs and codes in the folders "
             "that the explorer was started with. You can also type the path of a folder.")
    key = str(key or keys[0])
    if len(key) > SHOWN:
        st.sidebar.caption(literal(key))
    say("model", [key])
    entry = loaded.entry(key)
    check(not models_only or entry.kind != "codes", f"{entry.key} holds codes without their model, "
          "which this page needs; expected a model", ArtifactError)
    return entry


def say_if_damaged(entry: Entry) -> None:
    """Say that codes are shown whose model cannot be opened any more."""
    wrong = None if entry.kind == "codes" else loaded.damage(entry)
    if wrong is not None:
        st.warning(literal(f"The weights of {entry.key} cannot be read. What is shown was "
                           f"extracted from them before, and cannot be again: {wrong}"),
                   icon=":material/broken_image:")


def choose_split(offered: Sequence[str], where: Any = st.sidebar) -> str:
    """Return the split that the sidebar, or a column of it, chooses."""
    return choose("Split", offered, key="split", where=where,
                  help="; ".join(f"{name}: {text}" for name, text in SPLITS.items()))


def choose_look(chosen: Chosen, first: Callable[[], str | None]) -> tuple[str, str]:
    """Return the projection, as the library calls it, and the label that the sidebar chooses.

    At first it is PCA, for which nobody has to wait; t-SNE is a click away.

    first  returns the label that a page opens on where its URL names none; None: the first offered
    """
    codes, pair = chosen.codes, chosen.pair
    methods = [name for name, most in MOST_LAID_OUT.items() if len(codes) <= most]
    method = choose("Projection", methods, key="projection", default="PCA", form="buttons",
                    where=st.sidebar,
                    help="How codes are projected to two dimensions. t-SNE and UMAP take some "
                         "seconds per 2,000 codes at first, and are kept then. "
                         f"Above {min(MOST_LAID_OUT.values()):,} codes only PCA is offered.")
    offered = colour_labels(codes, pair)

    def default() -> str:
        with st.sidebar:
            return first() or offered[0]

    colour = choose("Colour by", offered, key="colour", default=default, where=st.sidebar,
                    also=response_labels(codes.labels, codes.pair(pair)),
                    help="A label of the instances, or how well the model does on them. "
                         "`rule` is the rule of the pair's response.")
    return METHODS[method], colour


def choose_codes(best: Callable[[Chosen], tuple[int, str]]) -> Chosen:
    """Return the codes that the sidebar chooses, computed if they are not there yet.

    best  returns the layer and pair that a page opens on, of codes whatever their layer and pair
    """
    entry = choose_entry()
    left, right = st.sidebar.columns(2)
    split = choose_split(loaded.splits(entry), left)
    most = len(loaded.saved_codes(entry.path)) if entry.kind == "codes" else loaded.MOST_READ
    sizes = sorted({*(n for n in loaded.POINTS if n <= most), min(most, loaded.POINTS[-1])})
    n = choose("Instances", sizes, key="n", shown=lambda n: f"{n:,}", where=right,
               help="How many problems are shown. Codes that are not stored yet are extracted "
                    "from the model, which takes a moment.")
    codes = loaded.codes(entry, split, n)
    say_if_damaged(entry)
    any_place = Chosen(entry, split, codes.layers[-1], codes.pairs[0].name, codes)
    layer = choose("Layer", codes.layers, key="layer", default=lambda: best(any_place)[0],
                   form="buttons", where=st.sidebar,
                   help="Layers are counted from 0, the one nearest to the input.")
    pairs = {pair.name: pair.description for pair in offered_pairs(entry, codes)}
    pair = choose("Pair (query → key)", list(pairs), key="pair",
                  default=lambda: best(any_place)[1], where=st.sidebar,
                  help="Which query attends to which key: the code has their score in every head.")
    st.sidebar.caption(literal(pairs[pair]))
    return at_place(any_place, layer, pair)


def offered_pairs(entry: Entry, codes: LatentCodes) -> list[Pair]:
    """Return the pairs of codes, and those that can be read out of their model beside them."""
    held = {pair.name for pair in codes.pairs}
    return [*codes.pairs, *(p for p in loaded.further_pairs(entry) if p.name not in held)]


def at_place(chosen: Chosen, layer: int, pair: str) -> Chosen:
    """Return codes of the same instances at a layer and pair, read out if they are not there."""
    codes = chosen.codes
    if pair not in [held.name for held in codes.pairs]:
        codes = loaded.codes(chosen.entry, chosen.split, len(codes), further=[pair])
    return replace(chosen, layer=layer, pair=pair, codes=codes)


def number_input(label: str, key: str, value: int, most: int) -> None:
    """Let a person type the number of a problem, below `most`, which the URL has as `key`."""
    widget = f"{key} number"
    st.session_state[widget] = value
    st.number_input(label, min_value=0, max_value=most - 1, step=1, key=widget,
                    on_change=answering(
                        lambda: remember(key, str(st.session_state[widget]))))
