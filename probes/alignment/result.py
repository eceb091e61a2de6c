"""The outcome of an alignment: how far the codes of several models agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import pandas as pd
from matplotlib.colors import Normalize

from latentcode.errors import ProbeError, check
from latentcode.figures.heat_maps import heat_map
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure, category_styles
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.figures import features_in, layers_in, name_panels, panels
from latentcode.probes.common.results import TableResult, distinct, where
from latentcode.probes.common.shared import shared_caveat

ALIGNMENTS = ("own", "raw", "matched", "random", "matched, scaled", "random, scaled", "rotated")
"""What is done to the codes that a probe of another model reads."""
HIGHEST = {"cka": 1.0, "procrustes": 2.0}
"""Top of the colour scale of each measure."""


@dataclass(frozen=True, repr=False)
class AlignmentResult(TableResult):
    """How far the codes of several models agree.

    layers    one row per two runs (or one with itself), pair, features, layer of each and measure
              (`cka`, `procrustes`): `value` with its 95 % interval, and `null`, what instances
              of other combinations give on average
    heads     one row per two runs, pair, features, layer and head of A: the matched head of B, the
              sign, and their correlation on the instances that the matching was fitted on
              (`fitted`) and on held-out combinations (`heldout`); `by_chance` is the held-out
              correlation, in size, with the other heads on average, NaN of a single head
    transfer  one row per two runs, pair, layer, label, features and alignment: the `metric` of
              A's probe on B's held-out codes
    contrasts  one row per two runs, pair, layer, label and features: the transferred score with
              `matched` heads less that with `random` ones, and likewise where they are scaled
    settings  everything else that determines the numbers

    Features: `code`, `residual`, and `untrained`, the initial weights of both models.
    """

    FORMAT = "latentcode.alignment"
    SHOWS = ("CKA, correlation of matched heads, and A's probe on B's held-out codes, means over "
             "pairs of runs")
    COLUMNS: ClassVar = {
        "layers": ("run_a", "run_b", "kind_a", "kind_b", "pair", "features", "layer_a", "layer_b",
                   "measure", "value", "low", "high", "null"),
        "heads": ("run_a", "run_b", "kind_a", "kind_b", "pair", "features", "layer", "head_a",
                  "head_b", "sign", "fitted", "heldout", "by_chance"),
        "transfer": ("run_a", "run_b", "kind_a", "kind_b", "pair", "label", "features", "layer",
                     "alignment", "metric", "value", "low", "high", "chance", "n_heldout",
                     "n_heldout_combinations"),
        "contrasts": contrast_columns("run_a", "run_b", "kind_a", "kind_b", "pair", "label",
                                      "layer", "features", "alignment")}
    TOLD: ClassVar = {"features": ("code",), "alignment": ("matched",)}

    layers: pd.DataFrame
    heads: pd.DataFrame
    transfer: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat() + shared_caveat(self.settings)
        for run, (trained, total) in self.settings["heldout_trained_on"].items():
            if trained:
                notes.append(f"Run {run} was trained on {trained} of the {total} combinations that "
                             "are held out here; its split has another seed.")
        alike, every = self._alike(), {*self._couples()}
        if alike == every:
            notes.append("All runs began with the same seed, and so with equal weights wherever "
                         "their kinds have the same: how far they agree may be no more than that, "
                         "and the untrained models are no control.")
        elif alike:
            notes.append("Left out of the summary and the figures, because they began with the "
                         "same seed, and so with equal weights wherever their kinds have the same: "
                         f"{', '.join(f'{a} and {b}' for a, b in sorted(alike))}.")
        return tuple(notes)

    def _couples(self) -> list[tuple[str, str]]:
        return distinct(self.heads, "run_a", "run_b")

    def _alike(self) -> set[tuple[str, str]]:
        """Return the pairs of runs whose initial weights were drawn with one seed."""
        seeds = self.settings.get("initial_seeds", {})
        return {(a, b) for a, b in self._couples()
                if a in seeds and b in seeds and seeds[a] == seeds[b]}

    def _independent(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of two runs of different seeds; of all two runs where none differ."""
        alike = self._alike()
        if alike == {*self._couples()}:
            alike = set()
        couples = zip(table["run_a"], table["run_b"], strict=True)
        return table[[a != b and (a, b) not in alike and (b, a) not in alike for a, b in couples]]

    def summary(self) -> pd.DataFrame:
        """Return one row per two kinds, pair, layer and features, means over pairs of runs whose
        initial weights were drawn with different seeds."""
        place = ["kind_a", "kind_b", "pair", "layer", "features"]
        same = self.layers[self.layers["layer_a"] == self.layers["layer_b"]]
        same, heads = (_both_ways(self._independent(table)) for table in (same, self.heads))
        measured = same.rename(columns={"layer_a": "layer"}).pivot_table(
            index=place, columns="measure", values="value", dropna=False, observed=True)
        matched = heads.groupby(place, sort=False)[["heldout", "by_chance"]].mean()
        matched.columns = pd.Index(["matched heads", "other heads"])
        label = self.settings["labels"][0]
        read = self._independent(self.transfer[self.transfer["label"] == label]).pivot_table(
            index=place, columns="alignment", values="value", dropna=False)
        read = read[[a for a in ALIGNMENTS if a in read.columns]]
        read.columns = pd.Index([f"{label}: {a}" for a in read.columns])
        joined = measured.join(matched, how="inner").join(read, how="inner")
        return joined.round(2).reset_index()

    def figure(self, *, pair: str | None = None, measure: str = "cka") -> Figure:
        """Return a measure of all layers against all: features down, two kinds across."""
        pair = self.first_pair(pair)
        table = where(self.layers, pair=pair, measure=measure)
        return layers_figure(self._independent(table), f"{measure}, {pair}, mean over pairs of "
                             "runs", measure)

    def transfer_figure(self, *, pair: str | None = None, label: str | None = None) -> Figure:
        """Return the score of transferred probes per layer: features down, two kinds across."""
        pair = self.first_pair(pair)
        label = self.settings["labels"][0] if label is None else label
        table = where(self.transfer, pair=pair, label=label)
        return transfer_figure(self._independent(table), ALIGNMENTS, f"probe for {label} of one "
                               f"run on the codes of another, {pair}")

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        return super().figures() | {"procrustes.png": self.figure(measure="procrustes"),
                                    "transfer.png": self.transfer_figure()}


def _both_ways(table: pd.DataFrame) -> pd.DataFrame:
    """Return a symmetric table of A and B with B and A beside it."""
    swap = {"kind_a": "kind_b", "kind_b": "kind_a", "run_a": "run_b", "run_b": "run_a"}
    return pd.concat([table, table.rename(columns=swap)], ignore_index=True)


def layers_figure(table: pd.DataFrame, title: str, measure: str) -> Figure:
    """Return layers of A against layers of B: a row per set of features, a column per two kinds.

    table  columns run_a, run_b, kind_a, kind_b, features, layer_a, layer_b, value; the mean over
           pairs of runs is drawn and written
    """
    check(len(table) > 0, "there are no rows to draw", ProbeError)
    kinds = distinct(table, "kind_a", "kind_b")
    feature_sets = features_in(table)
    n_layers = table["layer_a"].nunique()
    side = max(1.7, 0.36 * n_layers)
    with panels(len(feature_sets), len(kinds), max(side * len(kinds) + 1.6, 4.8),
                side * len(feature_sets) + 0.9, title) as (figure, grid):
        norm = Normalize(0.0, HIGHEST[measure])
        titles = []
        for axes, (features, (a, b)) in zip(grid.flat, product(feature_sets, kinds), strict=True):
            block = where(table, features=features, kind_a=a, kind_b=b)
            matrix = block.pivot_table(index="layer_a", columns="layer_b", values="value",
                                       dropna=False)
            drawn = heat_map(axes, matrix, norm, numbers=True)
            axes.set_box_aspect(1.0)
            n = len(block[["run_a", "run_b"]].drop_duplicates())
            titles.append(f"{a} (down), {b}\n{n} {'pair' if n == 1 else 'pairs'} of runs")
        name_panels(grid, titles[:len(kinds)],
                    [f"{FEATURE_STYLES[features][2]}\nlayer" for features in feature_sets],
                    [f"layer of {b}" for _, b in kinds])
        figure.colorbar(drawn, ax=grid, label=measure, shrink=0.6)
    return figure


def transfer_figure(table: pd.DataFrame, alignments: Sequence[str], title: str) -> Figure:
    """Return the score of transferred probes per layer: features down, two kinds across.

    table  columns run_a, run_b, kind_a, kind_b, features, layer, alignment, metric, value, chance;
           a line per alignment is the mean over pairs of runs, its band their range
    """
    check(len(table) > 0, "there are no rows to draw", ProbeError)
    kinds = distinct(table, "kind_a", "kind_b")
    feature_sets = features_in(table)
    layers = layers_in(table)
    looks = category_styles(list(alignments))
    with panels(len(feature_sets), len(kinds), max(2.2 * len(kinds) + 2.0, 6.4),
                1.9 * len(feature_sets) + 0.5, title, sharex=True, sharey=True) as (figure, grid):
        for axes, (features, (a, b)) in zip(grid.flat, product(feature_sets, kinds), strict=True):
            block = where(table, features=features, kind_a=a, kind_b=b)
            for name, (color, marker) in looks.items():
                values = block[block["alignment"] == name].groupby("layer")["value"]
                axes.fill_between(range(len(layers)), values.min(), values.max(), color=color,
                                  alpha=0.12, linewidth=0)
                axes.plot(range(len(layers)), values.mean(), color=color, marker=marker,
                          markersize=4, linestyle=":" if "random" in str(name) else "-",
                          label=str(name))
            axes.axhline(block["chance"].mean(), color=GREY, linestyle="--", linewidth=1.0,
                         label="best constant answer")
            axes.set_xticks(range(len(layers)), [str(layer) for layer in layers])
            axes.set_ylim(-0.02, 1.02)
        metric = table["metric"].iloc[0]
        name_panels(grid, [f"probe of {a},\ncodes of {b}" for a, b in kinds],
                    [f"{FEATURE_STYLES[features][2]}\n{metric}" for features in feature_sets],
                    "layer")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper")
    return figure
