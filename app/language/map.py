"""The map of pairs of tokens: what the pages of texts show it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import streamlit as st

from latentcode.app.charts.map.addresses import card_address
from latentcode.app.charts.map.colours import colours
from latentcode.app.charts.map.component import Pin, show_map
from latentcode.app.charts.map.component import Plane as Drawn
from latentcode.app.charts.theme import is_dark
from latentcode.app.language import planes
from latentcode.app.language.pair import card
from latentcode.app.language.reading import Read
from latentcode.app.language.work import Job
from latentcode.app.state.selection import Selection
from latentcode.app.state.url import choose


def choose_plane(layers: Sequence[int]) -> tuple[int | None, str, str]:
    """Return the layer, None for all, the projection and the colour."""
    options: list[str | int] = [planes.ALL, *layers]
    chosen = choose("Layer", options, key="lm_layer", where=st.sidebar,
                    help="The code of a pair is its attention at all heads of this layer, or of "
                         "all layers.")
    method = choose("Projection", planes.METHODS_SHOWN, key="lm_plane", form="buttons",
                    where=st.sidebar, help="PCA is there at once; t-SNE and UMAP take a while.")
    colour = choose("Colour by", list(planes.COLOURS), key="lm_colour", where=st.sidebar,
                    help="; ".join(f"{name}: {text}" for name, text in planes.COLOURS.items()))
    return None if chosen == planes.ALL else int(chosen), method, colour


def show_pairs(
    job: Job, read: Read, plane: planes.Plane, layer: int | None, method: str, colour: str,
    note: Callable[[Selection], None], *,
    height: int, alt: str, selection: Selection | None = None, selected: np.ndarray | None = None,
    instance: int | None = None, pins: Sequence[Pin] = (),
) -> None:
    """Show the pairs that were read of a model.

    note  called with what is clicked or outlined; the rest is as of `show_map`
    """
    shades = colours(planes.label(job, read, colour, layer), title=colour, dark=is_dark())
    cards = card_address(("language", read.stamp), lambda row: card(job, read, row))
    show_map(
        [Drawn(planes.name(read, layer, method), "", plane.at, cards=cards)],
        shades, note, key="map", dark=is_dark(), label=colour,
        selection=selection or Selection(), selected=selected, instance=instance, height=height,
        alt=alt, pins=pins)
