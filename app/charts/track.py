"""How does what the codes separate change over the layers? A line, on which a layer is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from latentcode.app.charts.knn_purity import knn_purity, name_of, numbers_of
from latentcode.app.charts.picking import pick
from latentcode.app.state.sidebar import Chosen
from latentcode.probes.knn_purity import ALL


def show(chosen: Chosen, colour: str) -> None:
    """Show how far the layers' codes separate the current colour; a click chooses a layer.

    Needs the sidebar's row of layers, of the key "layer", as `choose_layer` shows it.
    """
    places = []
    for layer, share, shuffled in over_layers(chosen, colour).to_numpy().tolist():
        known = np.isfinite(share)
        told = (f"layer {layer:.0f}: {share:.2f} of the nearest neighbours agree on {colour}, a "
                f"mean over its values; with shuffled labels {shuffled:.2f}" if known
                else f"layer {layer:.0f}: nothing to separate")
        places.append({"layer": int(layer), "value": share if known else None,
                       "shuffled": shuffled if known else None, "told": told})
    measured = f"Share of nearest neighbours that agree on {colour}; dashed: shuffled labels"
    pick("track", {"places": places, "current": chosen.layer, "measured": measured},
         chosen.codes.layers, key="layer", shown=chosen.layer)


def over_layers(chosen: Chosen, colour: str) -> pd.DataFrame:
    """Return `layer`, `purity` and `shuffled` of a label, a row per layer.

    NaN where a layer's codes are all the same, and for a label that is not judged.
    """
    rows: list[tuple[int, float, float]] = []
    for layer in chosen.codes.layers:
        table = knn_purity(replace(chosen, layer=layer))
        share = shuffled = np.nan
        if table is not None:
            of_all = table[table["among"] == ALL].set_index("label")
            name = name_of(chosen, colour, of_all.index)
            if name is not None:
                share, shuffled, _ = numbers_of(of_all, name)
        rows.append((layer, share, shuffled))
    return pd.DataFrame(rows, columns=["layer", "purity", "shuffled"])
