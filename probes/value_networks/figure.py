"""Pictures of value networks: cosines between classes, and a class's own networks."""

from __future__ import annotations

from itertools import cycle
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from latentcode.figures.heat_maps import heat_map
from latentcode.figures.style import FEATURE_STYLES, GREY, PALETTE, Figure, style
from latentcode.probes.common.figures import layers_in, panels
from latentcode.probes.common.results import distinct, where

LINES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
"""Line styles of the parts of a network."""
LEGEND: dict[str, Any] = {"fontsize": 6, "frameon": True, "framealpha": 0.8, "edgecolor": "none",
                          "facecolor": "white"}

COSINES = TwoSlopeNorm(0.0, -1.0, 1.0)


def cosines_figure(table: pd.DataFrame) -> Figure:
    """Return cosines between classes: layers across, labels, pairs and parts down.

    table  columns layer, pair, label, part, class, other, cosine, centred; raw cosines stand above
           the diagonal, centred ones below
    """
    places = distinct(table, "label", "pair", "part")
    layers = layers_in(table)
    height = 0.8 + 0.15 * table["class"].nunique()
    names = 0.06 * table["class"].str.len().max()
    with panels(len(places), len(layers), height * len(layers) + names + 2.2,
                (height + 0.1) * len(places) + names + 0.6, sharex="row") as (figure, grid):
        for row, (label, pair, part) in zip(grid, places, strict=True):
            for axes, layer in zip(row, layers, strict=True):
                image = _draw_cosines(
                    axes, where(table, label=label, pair=pair, part=part, layer=layer))
                axes.label_outer()
            row[0].set_ylabel(f"{label}, {part}\n{pair}", fontsize=8)
        for axes, layer in zip(grid[0], layers, strict=True):
            axes.set_title(f"layer {layer}")
        bar = figure.colorbar(image, ax=grid, fraction=0.04, aspect=25,
                              shrink=1.6 / (1 + len(places)))
        bar.set_label("cosine, below the diagonal of\ndifferences from the mean", fontsize=7.5)
    return figure


def class_figure(
    spectra: pd.DataFrame, cosine: pd.DataFrame, networks: pd.DataFrame, title: str
) -> Figure:
    """Return one class's networks: singular values, cosines to the others, and how far they are
    from the mean network, beside the controls; the tables of one label, class and pair."""
    trained = spectra[spectra["features"] == "code"]
    others = cosine[(cosine["features"] == "code") & (cosine["other"] != cosine["class"])]
    with style():
        figure = Figure(figsize=(10.2, 2.9), layout="constrained")
        left, middle, right = figure.subplots(1, 3, width_ratios=[1.0, 1.1, 0.9])
        _draw_spectra(left, trained)
        _draw_others(middle, others)
        _draw_distances(right, networks)
        figure.suptitle(title, fontsize=9)
    return figure


def _draw_cosines(axes: Axes, block: pd.DataFrame) -> AxesImage:
    names = list(block["class"].unique())
    raw, without_mean = (block.pivot(index="class", columns="other", values=column)
                         .loc[names, names].to_numpy() for column in ("cosine", "centred"))
    upper = np.triu(np.ones(raw.shape, dtype=bool))
    matrix = pd.DataFrame(np.where(upper, raw, without_mean), names, names)
    drawn = heat_map(axes, matrix, COSINES, fontsize=6.5, rotation=90)
    axes.set_box_aspect(1.0)
    if np.isnan(raw).all():
        axes.text(0.5, 0.5, "silent", transform=axes.transAxes, ha="center", va="center",
                  fontsize=8, color=GREY)
    return drawn


def _draw_spectra(axes: Axes, spectra: pd.DataFrame) -> None:
    parts = list(spectra["part"].unique())
    layers = layers_in(spectra)
    for color, layer in zip(cycle(PALETTE), layers, strict=False):
        for line, part in zip(cycle(LINES), parts, strict=False):
            values = where(spectra, layer=layer, part=part)
            axes.plot(values["index"] + 1, values["singular_value"], line, color=color,
                      marker=".", markersize=3, linewidth=1.0)
    axes.set(yscale="log", xlabel="index", title="singular values")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [Line2D([], [], color=color, label=f"layer {layer}")
               for color, layer in zip(cycle(PALETTE), layers, strict=False)]
    handles += [Line2D([], [], color="black", linestyle=line, label=part)
                for line, part in zip(cycle(LINES), parts, strict=False)]
    axes.legend(handles=handles, **LEGEND)


def _draw_others(axes: Axes, cosine: pd.DataFrame) -> None:
    table = cosine.pivot(index=["part", "layer"], columns="other", values="centred")
    table.index = pd.Index([f"{part}, {layer}" for part, layer in table.index])
    drawn = heat_map(axes, table, COSINES, fontsize=6.5, rotation=60)
    axes.set(ylabel="part, layer", title="cosine of differences from the mean")
    axes.figure.colorbar(drawn, ax=axes).ax.tick_params(labelsize=6.5)


def _draw_distances(axes: Axes, networks: pd.DataFrame) -> None:
    weights = [part for part in networks["part"].unique() if part != "response"][-1]
    for features, of_features in networks.groupby("features", sort=False):
        color, marker, name = FEATURE_STYLES[str(features)]
        for part, line in ((weights, "-"), ("response", "--")):
            values = of_features[of_features["part"] == part]
            axes.plot(values["layer"], values["apart"], line, color=color, marker=marker,
                      markersize=4, label=f"{name}, {part}")
    axes.set(xlabel="layer", title="distance from the mean / norm", ylim=(0.0, None))
    axes.set_xticks(layers_in(networks))
    axes.legend(**LEGEND)
