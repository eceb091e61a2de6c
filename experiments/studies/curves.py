"""How do the models learn? Curves of a metric over training steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from latentcode.figures.style import PALETTE, Figure, style
from latentcode.runs import Run


def learning_curves(
    runs: Mapping[str, Run], metric: str, splits: Sequence[str], *, low: float | None = None
) -> Figure:
    """Return one panel per split: the metric over steps, a line per run, +- 2 standard errors.

    low  lower end of the axis; R2 of an untrained model can be far below anything of interest
    """
    with style():
        figure = Figure(figsize=(2.6 * len(splits) + 1.2, 2.6), layout="constrained")
        panels = figure.subplots(1, len(splits), sharey=True, squeeze=False)[0]
        for axes, split in zip(panels, splits, strict=True):
            for color, (name, run) in zip(cycle(PALETTE), runs.items(), strict=False):
                table = run.metrics()
                table = table[(table["split"] == split) & (table["metric"] == metric)]
                axes.plot(table["step"], table["mean"], color=color, label=name, marker="o",
                          markersize=3)
                axes.fill_between(table["step"], table["mean"] - 2 * table["se"],
                                  table["mean"] + 2 * table["se"], color=color, alpha=0.2,
                                  linewidth=0)
            axes.set_title(split)
            axes.set_xlabel("step")
            if low is not None:
                axes.set_ylim(low, 1.0)
        panels[0].set_ylabel(metric)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure
