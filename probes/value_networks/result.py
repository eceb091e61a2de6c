"""The outcome of `value_networks`: tables, cosine matrices, a figure per class."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.errors import check_choice
from latentcode.figures.style import Figure
from latentcode.probes.common.results import FIGURE, TableResult, where
from latentcode.probes.value_networks.figure import class_figure, cosines_figure

FEW = 30
"""A mean over fewer instances than this is pointed out."""


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

    networks: pd.DataFrame
    spectra: pd.DataFrame
    cosines: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = []
        if not self.settings["controls"]:
            notes.append("Without controls: untrained, shuffled.")
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
