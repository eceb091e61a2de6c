"""The figures of the study: of first seeds, of fuzzy logic, and along trainings."""

from __future__ import annotations

import pandas as pd

from latentcode.experiments.evidence.study import Tables
from latentcode.experiments.studies.rows.tables import FIRST, along, headline
from latentcode.figures.style import PALETTE, Figure
from latentcode.probes.common.figures import name_panels, panels
from latentcode.probes.common.results import distinct, where
from latentcode.probes.decoding.features_figure import gains_figure, scores_figure

PAIR = "the paper's pair"


def drawn(tables: Tables) -> dict[str, Figure]:
    """Return the figures of the first seeds, of fuzzy logic, and of the milestones."""
    figures: dict[str, Figure] = {}
    scores = headline(tables["scores"])
    for key in distinct(scores[scores["part"] != "milestones"], *FIRST):
        which = dict(zip(FIRST, key, strict=True))
        if which["seed"] != 0 and which["part"] == "sraven":
            continue
        of, given = (where(table, **which).assign(pair=PAIR)
                     for table in (scores, tables["given"]))
        name = "-".join(str(part) for part in (
            which["part"], which["kind"], which["inputs"] or which["seed"]))
        figures[f"{name}.png"] = scores_figure(of)
        if len(given):
            figures[f"{name}-given.png"] = gains_figure(given)
    moments = along(scores)
    return figures | ({"milestones.png": milestones_figure(moments)} if len(moments) else {})


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
