"""What is looked at: a model, a split, a layer and a pair, chosen in the sidebar of every page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from latentcode.app.data import loaded as data
from latentcode.app.data.sources import Source
from latentcode.app.state.url import choose, note
from latentcode.app.words import literal
from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, check

SPLITS = {"ood": "held-out combinations", "test": "training combinations, fresh instances",
          "train": "training stream", "unknown": "combinations of unknown terms"}
"""Splits in words."""


@dataclass(frozen=True)
class Chosen:
    """What the sidebar has chosen.

    codes  those of `split`, at most `n`
    """

    source: Source
    split: str
    n: int
    layer: int
    pair: str
    codes: LatentCodes

    @property
    def key(self) -> tuple[object, ...]:
        """What the codes are known by in caches."""
        meta = self.codes.meta
        folder = (self.source.path if self.source.kind == "codes"
                  else data.stored_folder(self.source, self.split))
        return (str(self.source.path), self.split, len(self.codes), meta.get("run_id"),
                meta.get("step"), data.stamp(folder))


def choose_source(*, models_only: bool = False) -> Source:
    """Return the model, run or codes folder that the sidebar chooses.

    A path can be typed into the list. `ArtifactError` for one that may or can not be opened.
    """
    keys = [s.key for s in data.sources() if not models_only or s.kind != "codes"]
    asked = st.query_params.get("model")
    # A path that was typed, or came with the URL, is an option from then on.
    typed = st.session_state.get("model", asked)
    if typed is not None and typed not in keys:
        keys.append(typed)
    check(bool(keys), "there is nothing to show; expected a model of the zoo, or `latentcode "
          "explore FOLDER` with a folder that holds runs or codes", ArtifactError)
    with st.sidebar:
        key = st.selectbox(
            "Model", keys, key="model", bind="query-params", accept_new_options=True,
            help="The models that come with latentcode, and the runs and codes in the folders "
                 "that the explorer was started with. The path of a folder can be typed, too.")
    return data.source(note("model", key or keys[0]))


def choose_split(offered: Sequence[str]) -> str:
    """Return the split that the sidebar chooses."""
    with st.sidebar:
        return choose("Split", offered, key="split",
                      help="; ".join(f"{name}: {text}" for name, text in SPLITS.items()))


def choose_codes(source: Source | None = None) -> Chosen:
    """Return the codes that the sidebar chooses; computes them where they are not there yet.

    source  what a page has let the sidebar choose before; default: it is chosen here
    """
    source = choose_source() if source is None else source
    split = choose_split(data.splits(source))
    with st.sidebar:
        sizes = data.POINTS if source.kind != "codes" else tuple(
            n for n in data.POINTS if n <= max(len(data.saved_codes(source.path)), 1)) or (
                len(data.saved_codes(source.path)),)
        n = choose("Instances", sizes, key="n", shown=lambda n: f"{n:,}",
                   help="How many problems are shown. More than a model has stored are computed.")
    codes = data.codes(source, split, n)
    with st.sidebar:
        layer = choose("Layer", codes.layers, key="layer", default=codes.layers[-1],
                       form="buttons", help="Layers count from 0, the one nearest to the input.")
        names = [pair.name for pair in codes.pairs]
        pair = choose("Pair (query → key)", names, key="pair", help="Which token attends to which: "
                      "the code is the attention of all heads for this one query and key.")
        st.caption(literal(codes.pair(pair).description))
    return Chosen(source, split, n, layer, pair, codes)


__all__ = ["Chosen", "choose_codes", "choose_source", "choose_split"]
