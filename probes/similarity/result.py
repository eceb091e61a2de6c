"""The outcome of a comparison of codes: cosine matrices, means, and heads that codes use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from latentcode.errors import ProbeError, check
from latentcode.figures.heat_maps import heat_map, signed_norm
from latentcode.figures.style import FEATURE_STYLES, Figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
)
from latentcode.probes.common.results import TableResult, blocks, where, with_interval
from latentcode.probes.similarity.measures import cluster_order

ALL = "(all)"
"""The class that stands for all instances."""
MEASURE_NAMES = {
    "participation_ratio": "participation ratio", "sparsity": "sparsity (Hoyer)",
    "largest_share": "share of the\nlargest head", "one_hot": "one-hot codes\n(share)",
    "same_head": "commonest head\nis the largest (share)"}


@dataclass(frozen=True, repr=False)
class SimilarityResult(TableResult):
    """How the codes of a label's values compare, and how many heads they use.

    cosines        one row per layer, pair, features, centring (`raw`, `centred`) and two classes
                   `row`, `column`: the cosine `value` of their mean points with its interval
    means          the mean point of each class, one row per component (the head, of a code)
    samples        some instances, likewise
    concentration  one row per layer, pair, features, class ("(all)" for all instances) and measure,
                   see `concentration`
    contrasts      one row per layer, pair, centring, two classes and features: their cosine less
                   the `largest other` of either of them, and of the code also less that of the
                   residual stream, of the untrained model, and of `shuffled` labels
    settings       everything else that determines the numbers

    Features: `code`, `residual`, `untrained`, and `shuffled`, the code with shuffled labels (a mean
    over 20 shuffles). Intervals are 95 % bootstrap intervals (percentiles) clustered by
    combination. Resampled means are noisier than the means themselves and their cosines nearer to
    0: of classes that are almost alike an interval can lie below its own cosine.
    """

    FORMAT = "latentcode.similarity"
    COLUMNS: ClassVar = {
        "cosines": ("layer", "pair", "label", "features", "centring", "row", "column", "value",
                    "low", "high"),
        "means": ("layer", "pair", "label", "features", "class", "component", "value", "n"),
        "samples": ("layer", "pair", "label", "features", "instance", "class", "component",
                    "value"),
        "concentration": ("layer", "pair", "label", "features", "class", "measure", "value", "low",
                          "high", "n", "n_combinations"),
        "contrasts": contrast_columns("layer", "pair", "label", "centring", "row", "column",
                                      "features")}
    BEST_OF: ClassVar = ("layer", "row", "column")
    TOLD: ClassVar = {"features": ("code",), "centring": ("centred",)}

    cosines: pd.DataFrame
    means: pd.DataFrame
    samples: pd.DataFrame
    concentration: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def title(self) -> str:
        return (f"SimilarityResult: heads that a code uses, and the most similar classes of label "
                f"{self.settings['label']!r}")

    @property
    def caveats(self) -> tuple[str, ...]:
        n = len(self.settings["classes"])
        notes = [f"Centred cosines of {n} unrelated classes are {-1.0 / (n - 1):.2f} on average, "
                 "not 0, because centred means add up to zero.", *self.controls_caveat()]
        whole = self.concentration[self.concentration["class"] == ALL]
        total = whole["n"].max()  # of the code, of which none is zero
        zero = whole[whole["n"] < total].drop_duplicates(["features", "layer", "pair"])
        notes += [f"The {row.features} of layer {row.layer}, {row.pair} is zero in {total - row.n} "
                  f"of {total} instances, of which there is no concentration."
                  for row in zero.itertuples()]
        return tuple(notes)

    def matrix(
        self, *, layer: int, pair: str, features: str = "code", centring: str = "centred"
    ) -> pd.DataFrame:
        """Return the cosines [class, class] of a layer, pair and features, in clustering order."""
        block = where(self.cosines, layer=layer, pair=pair, features=features, centring=centring)
        check(len(block) > 0, f"there are no {centring} cosines of features {features!r}, layer "
              f"{layer!r}, pair {pair!r}", ProbeError)
        frame = block.pivot(index="row", columns="column", values="value")
        names = frame.index[cluster_order(frame.to_numpy())]
        return frame.loc[names, names]

    def summary(self) -> pd.DataFrame:
        """Return, per layer, pair and features, measures of all codes and the closest classes."""
        rows = []
        whole = self.concentration[self.concentration["class"] == ALL]
        for place, block in blocks(whole, ("pair", "layer", "features")):
            measures = {str(r.measure): with_interval(r)
                        for r in block.itertuples()}
            rows.append(place | measures | {"closest classes": _closest(self.matrix(**place))})
        return pd.DataFrame(rows)

    def figure(self, *, pair: str | None = None, centring: str = "centred") -> Figure:
        """Return the cosine matrices, features down and layers across (Fig. 5E, A8C).

        All matrices have the order in which the code of the last layer clusters.
        """
        pair = self.first_pair(pair)
        last = max(self.settings["layers"])
        order = list(self.matrix(layer=last, pair=pair, centring=centring).index)
        block = where(self.cosines, pair=pair, centring=centring)
        return cosine_figure(block, order, f"{centring} cosine of mean points per "
                             f"{self.settings['label']}, {pair}")

    def codes_figure(self, *, pair: str | None = None, features: str = "code") -> Figure:
        """Return sampled points above and mean points per class below, per layer (A8A, B)."""
        pair = self.first_pair(pair)
        samples, means = (where(table, pair=pair, features=features)
                          for table in (self.samples, self.means))
        check(len(means) > 0, f"there are no points of features {features!r}, pair {pair!r}",
              ProbeError)
        return codes_figure(samples, means, f"{features}, {pair}", self.settings["classes"])

    def concentration_figure(self, *, pair: str | None = None) -> Figure:
        """Return the measures of concentration per layer, features side by side."""
        pair = self.first_pair(pair)
        return concentration_figure(where(self.concentration, pair=pair, **{"class": ALL}), pair)

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        named = {f"points_{features}.png": self.codes_figure(features=features)
                 for features in self.samples["features"].unique()}
        return super().figures() | named | {"concentration.png": self.concentration_figure()}


def _closest(matrix: pd.DataFrame) -> str:
    values = matrix.to_numpy(copy=True)
    values[np.tril_indices(len(values))] = np.nan
    if np.isnan(values).all():
        return "the mean does not vary"
    i, j = (int(k) for k in np.unravel_index(np.nanargmax(values), values.shape))
    return f"{matrix.index[i]} ~ {matrix.columns[j]} {values[i, j]:.2f}"


def cosine_figure(table: pd.DataFrame, order: Sequence[str], title: str) -> Figure:
    """Return cosine matrices: a row per set of features, a column per layer.

    table  columns layer, features, row, column, value; one pair and one centring
    order  the classes from left to right and from top to bottom
    """
    check(len(table) > 0, "there are no cosines to draw", ProbeError)
    feature_sets = features_in(table)
    layers = layers_in(table)
    side = max(1.35, 0.13 * len(order))
    names = 0.07 * max(map(len, order)) + 0.3
    with panels(len(feature_sets), len(layers), side * len(layers) + names + 1.1,
                side * len(feature_sets) + names + 0.6, title) as (figure, grid):
        for axes, (features, layer) in zip(grid.flat, product(feature_sets, layers), strict=True):
            block = where(table, features=features, layer=layer)
            matrix = block.pivot(index="row", columns="column", values="value").loc[
                list(order), list(order)]
            drawn = heat_map(axes, matrix, TwoSlopeNorm(0.0, -1.0, 1.0), rotation=90)
            axes.set_box_aspect(1.0)
            axes.label_outer()
        name_panels(grid, [f"layer {layer}" for layer in layers],
                    [FEATURE_STYLES[features][2] for features in feature_sets], "")
        figure.colorbar(drawn, ax=grid, label="cosine", shrink=0.6, ticks=[-1, 0, 1])
    return figure


def codes_figure(
    samples: pd.DataFrame, means: pd.DataFrame, what: str, classes: Sequence[str]
) -> Figure:
    """Return points as rows of colours: single instances above, class means below, per layer.

    samples  columns layer, instance, class, component, value
    means    columns layer, class, component, value
    """
    layers = layers_in(samples)
    n_samples, n_classes = samples["instance"].nunique(), len(classes)
    wide = samples["component"].nunique()
    width, names = float(np.clip(0.1 * wide, 1.7, 3.0)), 0.065 * max(map(len, classes)) + 0.3
    with panels(2, len(layers), width * len(layers) + names + 0.8,
                0.125 * (n_samples + n_classes) + 1.5, what,
                height_ratios=[n_samples, n_classes]) as (figure, grid):
        for j, layer in enumerate(layers):
            some = samples[samples["layer"] == layer].sort_values(["class", "instance"])
            points = some.pivot(index="instance", columns="component", values="value")
            points = points.loc[some["instance"].unique()]
            of_class = means[means["layer"] == layer].pivot(
                index="class", columns="component", values="value").loc[list(classes)]
            # One scale for both: a mean that is paler than its instances shows that they cancel.
            norm = signed_norm(np.concatenate([points.to_numpy(), of_class.to_numpy()]))
            points.index = some.drop_duplicates("instance")["class"].to_list()
            for axes, matrix in zip(grid[:, j], (points, of_class), strict=True):
                drawn = heat_map(axes, matrix, norm, fontsize=6.5)
                axes.label_outer()
            grid[0, j].set_title(f"layer {layer}")
            grid[1, j].set_xlabel("head" if wide <= 64 else "component")
            bar = figure.colorbar(drawn, ax=grid[:, j], orientation="horizontal", shrink=0.8,
                                  fraction=0.04, pad=0.02)
            bar.ax.tick_params(labelsize=6.5)
        grid[0, 0].set_ylabel("sampled")
        grid[1, 0].set_ylabel("mean")
    return figure


def concentration_figure(table: pd.DataFrame, title: str) -> Figure:
    """Return one panel per measure: its value per layer, features side by side.

    table  columns layer, features, measure, value, low, high
    """
    measures = list(table["measure"].unique())
    feature_sets = features_in(table)
    layers = layers_in(table)
    with panels(1, len(measures), 1.75 * len(measures) + 0.4, 2.7, title) as (figure, grid):
        for axes, measure in zip(grid[0], measures, strict=True):
            points_per_layer(axes, table[table["measure"] == measure], feature_sets, layers)
            axes.set(title=MEASURE_NAMES.get(measure, measure), xlabel="layer")
            axes.set_ylim(-0.03, 1.03)
        figure.legend(handles=feature_handles(feature_sets), loc="outside lower center",
                      ncols=len(feature_sets))
    return figure
