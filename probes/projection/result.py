"""The outcome of a projection: coordinates, and how far to trust the picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from latentcode.probes.common.results import TableResult, blocks, where

if TYPE_CHECKING:
    from latentcode.figures.style import Figure

OURS: tuple[str, ...] = ("instance", "split", "fitted", "layer", "pair", "projection_x",
                         "projection_y")
"""Columns of the coordinates; a label of such a name is left out."""
PER_INCH = 15.0
"""Letters of a footnote that an inch holds."""


@dataclass(frozen=True, repr=False)
class ProjectionResult(TableResult):
    """Codes in two dimensions, and how far to trust the picture.

    coordinates  one row per split, layer, pair and instance: `projection_x`, `projection_y`,
                 whether the plane was `fitted` to the split, and all labels of the instance
    quality      one row per split, layer and pair: `trustworthiness`, on how many points and
                 neighbours
    labels       one row per split, layer, pair, label and space, the `plane` or the `code` itself:
                 `knn_agreement` beside `knn_shuffled`, `silhouette` (see `label_quality`)
    settings     the method with its settings, per layer and pair where they differ
    """

    FORMAT = "latentcode.projection"
    SHOWS = "quality of the plane, agreement of neighbours on labels"
    COLUMNS: ClassVar = {
        "coordinates": OURS,
        "quality": ("split", "layer", "pair", "fitted", "n", "trustworthiness", "points",
                    "neighbors"),
        "labels": ("split", "layer", "pair", "label", "space", "classes", "knn_agreement",
                   "knn_shuffled", "silhouette")}
    OPEN: ClassVar = ("coordinates",)

    coordinates: pd.DataFrame
    quality: pd.DataFrame
    labels: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = [f"{place}: the codes of all instances are the same, and there is no plane."
                 for place in self.settings["constant"]]
        notes += [f"{split}: a sample of {where(self.quality, split=split)['n'].iloc[0]:,} codes, "
                  f"drawn from {n:,}." for split, n in self.settings.get("drawn_from", {}).items()]
        notes += [f"{name} is {value:g}, the largest that the codes, which are few, allow."
                  for name, value in self.settings.get("reduced", {}).items()]
        judged = set(self.labels["label"])
        if colours := [name for name in self.settings["labels"] if name not in judged]:
            notes.append(f"Measurements colour the points, and have no agreement of neighbours: "
                         f"{', '.join(colours)}.")
        if not self.quality["fitted"].all():
            notes.append("Points of splits that the plane was not fitted to are placed among "
                         "those that it was; they cannot move them.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return, per split, layer and pair, the trustworthiness, and per label the agreement
        of neighbours in the plane and in the codes."""
        keys = ["split", "layer", "pair"]
        table = self.quality[[*keys, "trustworthiness"]]
        if len(self.labels) == 0:
            return table.round(3)
        plane, code = (self.labels[self.labels["space"] == space][
            [*keys, "label", "knn_agreement", "knn_shuffled", "silhouette"]]
            for space in ("plane", "code"))
        code = code[[*keys, "label", "knn_agreement"]].rename(
            columns={"knn_agreement": "knn_agreement_in_code"})
        return table.merge(plane, on=keys, how="left").merge(
            code, on=[*keys, "label"], how="left").round(3)

    def figure(self) -> Figure:
        """Return a panel per layer (across), label, pair and split (down), with its quality."""
        # Only now: the explorer reads results, and its first picture would wait for matplotlib.
        from latentcode.probes.projection.figure import ScatterCell, scatter_figure

        cells = []
        several_pairs = self.coordinates["pair"].nunique() > 1
        several_splits = self.coordinates["split"].nunique() > 1
        planes = list(blocks(self.coordinates, ("pair", "split", "layer")))
        for label in self.settings["labels"]:
            for place, points in planes:
                row = [label]
                if several_pairs:
                    row.append(str(place["pair"]))
                if several_splits:
                    row.append(str(place["split"]))
                cells.append(ScatterCell(
                    "\n".join(row), f"layer {place['layer']}",
                    points[["projection_x", "projection_y"]].to_numpy(), points[label],
                    self._note(label, place)))
        figure = scatter_figure(cells)
        width = int(PER_INCH * figure.get_figwidth())
        figure.supxlabel("\n".join(line for text in self._footnotes()
                                   for line in wrap(text, width)), fontsize=7)
        return figure

    def _note(self, label: str, place: Mapping[str, object]) -> str:
        rows = where(self.labels, **place, label=label, space="plane")
        note = f"T {where(self.quality, **place)['trustworthiness'].iloc[0]:.2f}"
        if len(rows):
            values = rows.iloc[0]
            note += (f", kNN {values['knn_agreement']:.2f} ({values['knn_shuffled']:.2f})"
                     f", S {values['silhouette']:.2f}")
        return note

    def _footnotes(self) -> list[str]:
        pairs, fitted = self.quality["pair"].unique(), self.quality[self.quality["fitted"]].iloc[0]
        return [
            ", ".join(f"{name} {value}" for name, value in self.settings["method"].items())
            + (f"; {pairs[0]}" if len(pairs) == 1 else "")
            + f"; fitted to {fitted['n']:,} points of {fitted['split']}",
            "T: trustworthiness. kNN: share of nearest neighbours with the same label (of shuffled "
            "labels). S: silhouette."]
