"""The outcome of `value_networks`: tables, cosine matrices, a figure per class."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from latentcode.errors import check_choice
from latentcode.figures.heat_maps import heat_map
from latentcode.figures.style import FEATURE_STYLES, GREY, PALETTE, Figure, style
from latentcode.probes.common.figures import layers_in, panels
from latentcode.probes.common.results import FIGURE, TableResult, distinct, where
from latentcode.probes.common.shuffling import no_null

FEW = 30
"""A mean over fewer instances than this is pointed out."""
LINES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
"""Line styles of the parts of a network."""
LEGEND: dict[str, Any] = {"fontsize": 6, "frameon": True, "framealpha": 0.8, "edgecolor": "none",
                          "facecolor": "white"}
COSINES = TwoSlopeNorm(0.0, -1.0, 1.0)


@dataclass(frozen=True, repr=False)
class ValueNetworksResult(TableResult):
    """Value networks of the mean codes of each class of a label.

    Parts of a network are `matrix`, W_qk of an affine network, or `weights 1`, `weights 2`, ...
    of its generated layers, and `response`, its outputs on all inputs as a matrix
    [input, d_model] over the root of their number. Features are `code`, `untrained` and
    `shuffled` (labels).

    networks  one row per layer, pair, label, features, class and part: instances `n`, Frobenius
              `norm`, `effective_rank`, `stable_rank`; `apart`, the distance from the mean over
              the classes over the norm; with part `response` and hidden units, the share of units
              that are `active`, on all inputs, and `active_own`, with the instances' own codes
              on their own inputs as in the forward pass
    spectra   the singular values of each of them, down to a millionth of the largest
    cosines   one row per two classes: `cosine` of their parts, and `centred`, of their
              differences from the mean over the classes (NaN where these are rounding)
    settings  everything else that determines the numbers
    """

    FORMAT = "latentcode.value_networks"
    SHOWS = "means over classes"
    COLUMNS: ClassVar = {
        "networks": ("layer", "pair", "label", "features", "class", "part", "n", "norm",
                     "effective_rank", "stable_rank", "apart", "active", "active_own"),
        "spectra": ("layer", "pair", "label", "features", "class", "part", "index",
                    "singular_value"),
        "cosines": ("layer", "pair", "label", "features", "part", "class", "other", "cosine",
                    "centred")}

    LARGEST: ClassVar = ("networks", "apart")

    networks: pd.DataFrame
    spectra: pd.DataFrame
    cosines: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = []
        if not self.settings["controls"]:
            notes.append("Without controls: untrained, shuffled.")
        notes += map(no_null, self.settings.get("no_null", ()))
        trained = self.networks[self.networks["features"] == "code"]
        few = trained[trained["n"] < FEW]
        notes += [f"Label {label}: the mean code of {value} is of {n} instances only."
                  for label, value, n in few[["label", "class", "n"]].drop_duplicates()
                  .itertuples(index=False)]
        silent = trained[(trained["part"] == "response") & (trained["norm"] == 0.0)]
        notes += [f"Layer {layer}, {pair}, label {label}: the mean networks of {len(rows)} classes "
                  "are silent, no hidden unit being active on any input; they have no response "
                  f"to compare. With its own code {rows['active_own'].mean():.1%} of the units "
                  "are active."
                  for (layer, pair, label), rows in silent.groupby(["layer", "pair", "label"])]
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return, per layer, pair, label, features and part, means over the classes, and the mean
        cosine of two different ones."""
        keys = ["layer", "pair", "label", "features", "part"]
        means = self.networks.groupby(keys, sort=False)[
            ["norm", "effective_rank", "stable_rank", "apart", "active", "active_own"]].mean()
        different = self.cosines[self.cosines["class"] != self.cosines["other"]]
        means["cosine"] = different.groupby(keys, sort=False)["cosine"].mean()
        return means.round(3).reset_index()

    def figures(self) -> dict[str, Figure]:
        """Return `figure.png` and one figure per label, class and pair, by file name."""
        places = self.networks[self.networks["features"] == "code"][["label", "class", "pair"]]
        several = places["pair"].nunique() > 1
        named = {FIGURE: self.figure()}
        for label, value, pair in places.drop_duplicates().itertuples(index=False):
            name = f"{label}-{value}"
            if several:
                name += "-" + pair.replace("->", "_to_")
            name = re.sub(r"[\\/:*?\"<>|\s]+", "_", name)  # what some file systems forbid
            while f"{name}.png" in named:
                name += "_"
            named[f"{name}.png"] = self.class_figure(label, value, pair)
        return named

    def figure(self) -> Figure:
        """Return cosines between the networks of the classes: raw ones above the diagonal,
        centred ones below; layers across, labels, pairs and parts down."""
        return cosines_figure(self.cosines[self.cosines["features"] == "code"])

    def class_figure(self, label: str, value: str, pair: str | None = None) -> Figure:
        """Return one class's networks: singular values, cosines to the others, and how far they
        are apart from the mean network, beside the controls.

        pair  default: the first. `UnknownNameError` for what there is not.
        """
        pair = str(self.networks["pair"].iloc[0]) if pair is None else pair
        for what, name in (("label", label), ("pair", pair)):
            check_choice(what, name, self.networks[what].unique())
        mine = [where(table, label=label, pair=pair)
                for table in (self.spectra, self.cosines, self.networks)]
        check_choice("class", value, mine[2]["class"].unique())
        spectra, cosine, networks = (where(table, **{"class": value}) for table in mine)
        return class_figure(spectra, cosine, networks, (
            f"{label} {value}, {pair}, {self.settings['kind']}: mean code of "
            f"{networks[networks['features'] == 'code']['n'].iloc[0]:,} instances of "
            f"{self.settings['split']}"))


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
