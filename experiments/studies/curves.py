"""How do the models learn? Curves of a metric over training steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle

import pandas as pd
from matplotlib.axes import Axes

from latentcode.figures.style import PALETTE, Figure, style
from latentcode.runs import Run


def curve(run: Run, split: str, metric: str) -> pd.DataFrame:
    """Return `mean` and `se` of a metric, a row per step at which it was measured."""
    table = run.metrics()
    chosen = (table["split"] == split) & (table["metric"] == metric)
    return table[chosen].set_index("step")[["mean", "se"]]


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
                table = curve(run, split, metric)
                mean, error = table["mean"], 2 * table["se"]
                axes.plot(table.index, mean, color=color, label=name, marker="o", markersize=3)
                axes.fill_between(table.index, mean - error, mean + error, color=color, alpha=0.2,
                                  linewidth=0)
            axes.set_title(split)
            axes.set_xlabel("step")
            if low is not None:
                axes.set_ylim(low, 1.0)
        panels[0].set_ylabel(metric)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def curves_by_kind(kinds: Iterable[str], draw: Callable[[Axes, str], None]) -> Figure:
    """Return one panel per attention kind, of R2 over steps; `draw` fills the panel of a kind."""
    names = list(kinds)
    with style():
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, names, strict=True):
            draw(axes, kind)
            axes.set(title=kind, xlabel="step", ylim=(-0.3, 0.8))
        panels[0].set_ylabel("R2 on held-out combinations")
        panels[0].legend(loc="lower right")
    return figure
