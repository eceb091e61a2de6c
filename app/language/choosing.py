"""What the sidebar chooses of the map: which codes, how they are laid out, what colours them."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from latentcode.app.language.planes import ALL, COLOURS, METHODS_SHOWN
from latentcode.app.state.url import choose


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
