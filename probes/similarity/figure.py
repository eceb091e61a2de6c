"""Pictures of similarity: cosine matrices, codes as rows, measures per layer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm

from latentcode.errors import ProbeError, check
from latentcode.figures.heat_maps import heat_map, signed_norm
from latentcode.figures.style import FEATURE_STYLES, Figure
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
)
from latentcode.probes.common.results import where

MEASURE_NAMES = {
    "participation_ratio": "participation ratio", "sparsity": "sparsity (Hoyer)",
    "largest_share": "share of the\nlargest head", "one_hot": "one-hot codes\n(share)",
    "same_head": "commonest head\nis the largest (share)"}


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
