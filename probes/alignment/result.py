"""The outcome of an alignment: how far the codes of several models agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.figures.style import Figure
from latentcode.probes.alignment.figure import layers_figure, transfer_figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.results import TableResult, distinct, where
from latentcode.probes.common.shared import shared_caveat

ALIGNMENTS = ("own", "raw", "matched", "random", "matched, scaled", "random, scaled", "rotated")
"""What is done to the codes that a probe of another model reads."""


@dataclass(frozen=True, repr=False)
class AlignmentResult(TableResult):
    """How far the codes of several models agree.

    layers    one row per two runs (or one with itself), pair, features, layer of each and measure
              (`cka`, `procrustes`): `value` with its 95 % interval, and `null`, what instances
              of one model that were shuffled give
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
