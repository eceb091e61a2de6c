"""How did the metrics of a run change over its steps?"""

from __future__ import annotations

from itertools import cycle

import pandas as pd
from matplotlib.ticker import LogFormatter

from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.metrics import is_by_constituent

TRAINING_LOSS, LOSS = "training_loss", "loss"


def metrics_figure(table: pd.DataFrame) -> Figure:
    """Return the metrics of a run over its steps: a panel per metric, a line per split.

    table  columns step, split, metric, mean, se; bands are +- 2 standard errors

    Metrics of single constituents are left out.

    The loss has a logarithmic axis where it is positive, with the training loss in grey; other
    metrics are shown from 0 to 1, where an untrained model may lie outside.
    """
    metrics = [str(name) for name in table["metric"].unique()
               if name != TRAINING_LOSS and not is_by_constituent(name)]
    metrics = metrics or [TRAINING_LOSS]
    splits = list(table.loc[table["metric"] != TRAINING_LOSS, "split"].unique())
    with style():
        figure = Figure(figsize=(2.3 * len(metrics) + 1.0, 2.3), layout="constrained")
        panels = figure.subplots(1, len(metrics), squeeze=False)[0]
        for axes, metric in zip(panels, metrics, strict=True):
            if metric in (LOSS, TRAINING_LOSS):
                training = table[table["metric"] == TRAINING_LOSS]
                axes.plot(training["step"], training["mean"], color=GREY, linewidth=0.8,
                          label="training")
                if (table.loc[table["metric"].isin([LOSS, TRAINING_LOSS]), "mean"] > 0).all():
                    axes.set_yscale("log")
                    axes.yaxis.set_major_formatter(LogFormatter())
                    axes.yaxis.set_minor_formatter(LogFormatter())
            else:
                axes.set_ylim(-0.03, 1.03)
            for color, split in zip(cycle(PALETTE), splits, strict=False):
                rows = table[(table["metric"] == metric) & (table["split"] == split)]
                axes.plot(rows["step"], rows["mean"], color=color, marker="o", markersize=2.5,
                          label=split)
                axes.fill_between(rows["step"], rows["mean"] - 2 * rows["se"],
                                  rows["mean"] + 2 * rows["se"], color=color, alpha=0.2,
                                  linewidth=0)
            axes.set_title(metric.replace("_", " "), parse_math=False)
            axes.set_xlabel("step")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper")
    return figure
