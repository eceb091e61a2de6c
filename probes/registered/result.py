"""The outcome of a registered probe: its scores beside their controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.errors import ProbeError, called, check
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
from latentcode.probes.common.results import (
    BAG,
    TableResult,
    blocks,
    distinct,
    where,
    with_interval,
)
from latentcode.probes.decoding.result import named, parted
from latentcode.probes.registered.registry import PROBES, Probe


@dataclass(frozen=True, repr=False)
class ProbeResult(TableResult):
    """What a registered probe found, beside controls.

    table      one row per layer, pair, label, features and `quantity` (a column of the probe's):
               the mean `value` over `n` problems with its 95 % interval `low`, `high`, which
               resamples the `n_combinations` combinations
    contrasts  one row per layer, pair, label, features of the trained model, quantity and what they
               are measured `against`: shuffled labels, the untrained model, the residual stream, of
               whole texts the `bag` of their tokens
    settings   everything else that determines the numbers; `probe` is its name

    Features: those that were asked for, `residual`, and `untrained` and `shuffled` (of features
    other than the code `untrained row` and so on); where the features do not vary there is no row.
    A result opens without the file that registers its probe. The picture is then the one that all
    probes have.
    """

    FORMAT = "latentcode.probe"
    COLUMNS: ClassVar = {
        "table": ("layer", "pair", "label", "features", "quantity", "value", "low", "high", "n",
                  "n_combinations"),
        "contrasts": contrast_columns("layer", "pair", "label", "features")}

    table: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def probe(self) -> str:
        """The name of the probe."""
        return str(self.settings["probe"])

    @property
    def name(self) -> str:
        return f"{type(self).__name__} of {self.probe}"

    @property
    def title(self) -> str:
        return f"{type(self).__name__}: {self.probe}: {self.settings['asks']}"

    @property
    def caveats(self) -> tuple[str, ...]:
        return (*self.controls_caveat(), *(
            f"The {place} is the same in all problems: no score."
            for place in self.settings["constant"]))

    def said(self) -> list[str]:
        """Say what the probe's own sentence says, if it has one, and what was found above its
        controls."""
        said = self.settings["said"]
        return [*([] if said is None else [str(said)]), *super().said()]

    def summary(self) -> pd.DataFrame:
        """Return one row per label, quantity, pair and layer, and `value [low, high]` by features.
        """
        place = ("label", "quantity", "pair", "layer")
        asked = self.settings["features"]
        order = [*asked, "residual", BAG, *(named(of, model) for model in ("untrained", "shuffled")
                                       for of in asked)]
        table = pd.DataFrame([
            found | {str(row.features): with_interval(row, digits=3) for row in block.itertuples()}
            for found, block in blocks(self.table, place)]).fillna("")
        return table[[*place, *(name for name in dict.fromkeys(order) if name in table)]]

    def figure(self, *, pair: str | None = None) -> Figure:
        """Return the picture that the probe has; else every score per layer, beside its controls.

        pair  of the picture that all probes have: which; default: the first
        """
        known = PROBES.get(self.probe)
        if known is not None and known.probe.figure is not None and pair is None:
            return own_figure(known.probe, self)
        pair = self.first_pair(pair)
        return probe_figure(where(self.table, pair=pair), f"{self.probe}, {pair}")


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
