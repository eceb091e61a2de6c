"""The figures of the study: classes of answers by place, and along a training."""

from __future__ import annotations

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.evidence.found import Tables
from latentcode.experiments.studies.operation.criteria import BOTH, WHERE, place_of
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import distinct, where
from latentcode.probes.interventions.class_figure import COLOURS


def drawn(tables: Tables) -> dict[str, Figure]:
    """Return the figures, by file name."""
    figures = {f"{task}.png": _bars(where(tables["over_seeds"], task=task))
               for (task,) in distinct(tables["over_seeds"], "task")}
    if len(tables["along"]):
        figures["along.png"] = _curves(tables["along"])
    return figures


def _bars(over: pd.DataFrame) -> Figure:
    """Draw the classes of the telling source as stacked bars, a panel per kind."""
    both = over[over["patch"] == BOTH]
    kinds = [kind for (kind,) in distinct(both, "kind")]
    places = [dict(zip(WHERE, key, strict=True)) for key in distinct(both, *WHERE)]
    with panels(1, len(kinds), 3.0 * len(kinds) + 2.4, 0.2 * len(places) + 1.2,
                sharey=True) as (figure, (row,)):
        for axes, kind in zip(row, kinds, strict=True):
            left = [0.0] * len(places)
            for name in CLASSES:
                widths = [where(both, kind=kind, **place, **{"class": name})["mean"].sum()
                          for place in places]
                axes.barh(range(len(places)), widths, left=left, color=COLOURS[name], label=name,
                          height=0.8)
                left = [a + b for a, b in zip(left, widths, strict=True)]
            axes.set(title=kind, xlim=(0, 1), xlabel="share of answers")
            axes.grid(visible=False)
        row[0].set_yticks(range(len(places)), [place_of(place) for place in places])
        row[0].invert_yaxis()
        figure.legend(*row[0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=len(CLASSES))
    return figure


def _curves(along: pd.DataFrame) -> Figure:
    """Draw the classes of the telling source over updates, a row per place and a column per
    kind."""
    both = along[along["patch"] == BOTH]
    kinds = [kind for (kind,) in distinct(both, "kind")]
    places = [dict(zip(WHERE, key, strict=True)) for key in distinct(both, *WHERE)]
    with panels(len(places), len(kinds), 2.6 * len(kinds), 1.8 * len(places) + 0.4, sharex=True,
                sharey=True) as (figure, grid):
        for place, row in zip(places, grid, strict=True):
            for kind, axes in zip(kinds, row, strict=True):
                for name in CLASSES:
                    line = where(both, kind=kind, **place, **{"class": name})
                    axes.plot(line["step"], line["value"], color=COLOURS[name], label=name,
                              marker="o", markersize=3)
                axes.set_title(f"{kind}: {place_of(place)}", fontsize=7)
                axes.set_ylim(-0.03, 1.03)
        for axes in grid[-1]:
            axes.set_xlabel("updates")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=len(CLASSES))
    return figure
