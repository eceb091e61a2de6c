"""How do the models learn? Curves of a metric over training steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from latentcode.config import RunConfig
from latentcode.figures.style import PALETTE, Figure
from latentcode.models.config import kind_of
from latentcode.probes.common.figures import panels
from latentcode.runs import Run
from latentcode.training import train_side_by_side


def curve(run: Run, split: str, metric: str) -> pd.DataFrame:
    """Return `mean` and `se` of a metric, a row per step at which it was measured."""
    table = run.metrics()
    chosen = (table["split"] == split) & (table["metric"] == metric)
    return table[chosen].set_index("step")[["mean", "se"]]


def learned(work: Path, configs: Iterable[RunConfig]) -> pd.DataFrame:
    """Train what is not in a folder yet, side by side; what was interrupted goes on.

    Returns R2 on held-out combinations: a row per run and step at which it was measured.
    """
    configs = list(configs)
    names = [f"{kind_of(config.model)}-{config.training.precision}-seed{config.training.seed}"
             f"-{config.training.steps}-steps" for config in configs]
    runs = train_side_by_side({work / name: config
                               for name, config in zip(names, configs, strict=True)})
    return pd.concat([
        curve(run, "ood", "r2")["mean"].rename("value").reset_index().assign(
            kind=kind_of(run.config.model), precision=run.config.training.precision,
            seed=run.config.training.seed) for run in runs.values()], ignore_index=True)


def learning_curves(
    runs: Mapping[str, Run], metric: str, splits: Sequence[str], *, low: float | None = None
) -> Figure:
    """Return one panel per split: the metric over steps, a line per run, +- 2 standard errors.

    low  lower end of the axis; R2 of an untrained model can be far below anything of interest
    """
    with panels(1, len(splits), 2.6 * len(splits) + 1.2, 2.6, sharey=True) as (figure, (row,)):
        for axes, split in zip(row, splits, strict=True):
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
        row[0].set_ylabel(metric)
        figure.legend(*row[0].get_legend_handles_labels(), loc="outside right upper")
    return figure


def curves_by_kind(kinds: Iterable[str], draw: Callable[[Axes, str], None]) -> Figure:
    """Return one panel per attention kind, of R2 over steps; `draw` fills the panel of a kind."""
    names = list(kinds)
    with panels(1, len(names), 7.2, 2.9, sharey=True) as (figure, (row,)):
        for axes, kind in zip(row, names, strict=True):
            draw(axes, kind)
            axes.set(title=kind, xlabel="step", ylim=(-0.3, 0.8))
        row[0].set_ylabel("R2 on held-out combinations")
        row[0].legend(loc="lower right")
    return figure
