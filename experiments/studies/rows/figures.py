"""The figure of the study: accuracy along trainings."""

from __future__ import annotations

import pandas as pd

from latentcode.experiments.evidence.found import Tables
from latentcode.experiments.studies.rows.tables import along, headline
from latentcode.figures.style import PALETTE, Figure
from latentcode.probes.common.figures import name_panels, panels
from latentcode.probes.common.results import where


def drawn(tables: Tables) -> dict[str, Figure]:
    """Return the figure of the milestones, by file name; none without."""
    moments = along(headline(tables["scores"]))
    return {"milestones.png": milestones_figure(moments)} if len(moments) else {}


def milestones_figure(moments: pd.DataFrame) -> Figure:
    """Return accuracy over updates: a row per kind, features across, a line per label; the
    deeper the layer, the darker."""
    kinds, feature_sets = moments["kind"].unique(), moments["features"].unique()
    labels, layers = list(moments["label"].unique()), sorted(moments["layer"].unique())
    with panels(len(kinds), len(feature_sets), 2.6 * len(feature_sets) + 1.4,
                1.9 * len(kinds) + 0.5, sharex=True, sharey=True) as (figure, grid):
        for row, kind in enumerate(kinds):
            for column, features in enumerate(feature_sets):
                for label, color in zip(labels, PALETTE, strict=False):
                    for depth, layer in enumerate(layers):
                        line = where(moments, kind=kind, features=features, label=label,
                                     layer=layer).sort_values("step")
                        grid[row, column].plot(
                            line["step"], line["value"], color=color, marker="o", markersize=2.5,
                            alpha=(depth + 1) / len(layers),
                            label=label if layer == layers[-1] else None)
        name_panels(grid, list(feature_sets), [f"{kind}\naccuracy" for kind in kinds], "updates")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper",
                      title=f"layer {layers[0]} faint,\n{layers[-1]} full")
    return figure
