"""The picture of a registered probe: each score per layer, its controls beside it."""

from __future__ import annotations

import pandas as pd

from latentcode.errors import ProbeError, called, check
from latentcode.figures.style import FEATURE_STYLES, Figure
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
)
from latentcode.probes.common.results import BAG, TableResult, distinct, where
from latentcode.probes.decoding.result import parted
from latentcode.probes.registered.registry import Probe


def own_figure(probe: Probe, result: TableResult) -> Figure:
    """Return the picture that a probe draws of a result; `ProbeError` for what it raises."""
    assert probe.figure is not None
    with panels(1, 1, 5.4, 3.4) as (figure, grid):
        called(f"probe {probe.name!r}: its figure", ProbeError, probe.figure, result, grid[0, 0])
    return figure


def probe_figure(table: pd.DataFrame, title: str) -> Figure:
    """Return the scores of a pair: a row per label and quantity, a column per features.

    table  columns label, quantity, features, layer, value, low, high

    The trained model's features are drawn as the code is, each control as everywhere; bars are 95 %
    intervals.
    """
    check(len(table) > 0, "there are no scores to draw", ProbeError)
    table = parted(table)
    residual, bag = (table["features"] == name for name in ("residual", BAG))
    control = bag | (residual & (table["model"] == "trained") & (
        len(table.loc[~(residual | bag)]) > 0))  # alone the stream is what was asked for
    asked = list(dict.fromkeys(table.loc[~control, "features"]))
    drawn = table["model"].replace({"trained": "code"}).mask(control, table["features"])
    table = table.assign(of=table["features"], features=drawn)
    kinds, layers = distinct(table, "label", "quantity"), layers_in(table)
    with panels(len(kinds), len(asked), (0.45 * len(layers) + 1.4) * len(asked) + 1.9,
                1.9 * len(kinds) + 0.5, title, sharex=True, sharey="row") as (figure, grid):
        for row, (label, quantity) in enumerate(kinds):
            for column, of in enumerate(asked):
                block = where(table, label=label, quantity=quantity)
                block = block[(block["of"] == of) | block["features"].isin(["residual", BAG])]
                points_per_layer(grid[row, column], block, features_in(block), layers)
        name_panels(grid, asked, [f"{label}\n{quantity}" for label, quantity in kinds], "layer")
        handles = feature_handles(features_in(table))
        for handle in handles:
            if handle.get_label() == FEATURE_STYLES["code"][2]:
                handle.set_label("trained model")
        figure.legend(handles=handles, loc="outside right upper")
    return figure


__all__ = ["own_figure", "probe_figure"]
