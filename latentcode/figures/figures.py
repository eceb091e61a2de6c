"""Pictures of what flows: the mean codes of a label, the metrics of a run; and coloured cells."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.image import AxesImage
from matplotlib.ticker import LogFormatter

from latentcode.figures.style import DIVERGING, GREY, PALETTE, SEQUENTIAL, Figure, style
from latentcode.metrics import is_by_constituent

LONGEST = 28
"""Letters of a name that a tick label shows."""
TRAINING_LOSS, LOSS = "training_loss", "loss"


def mean_codes_figure(means: pd.DataFrame, title: str) -> Figure:
    """Return mean codes as rows of colours, a column per head; white is a score of 0.

    means  index: what each row is; one column per head
    """
    names = [_short(name) for name in means.index]
    n_rows, n_heads = means.shape
    letters = max(map(len, names), default=0)
    with style():
        figure = Figure(figsize=(0.07 * letters + float(np.clip(0.17 * n_heads, 1.8, 6.0)) + 1.0,
                                 0.17 * n_rows + 0.95), layout="constrained")
        axes = figure.subplots()
        drawn = heat(axes, means.to_numpy(), signed_norm(means.to_numpy()))
        # Names come from data, where a dollar sign is no mathematics.
        axes.set_yticks(range(n_rows), names, fontsize=7.5, parse_math=False)
        axes.set_xticks(range(0, n_heads, max(1, n_heads // 8)))
        axes.set_xlabel("head")
        axes.set_ylabel(_short(means.index.name or ""), parse_math=False)
        axes.set_title(title, fontsize=8.5, parse_math=False)
        figure.colorbar(drawn, ax=axes, label="mean score", fraction=0.05, pad=0.02)
    return figure


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


def heat(axes: Axes, values: np.ndarray, norm: Normalize) -> AxesImage:
    """Draw a matrix as coloured cells, and return what a colour bar needs."""
    axes.grid(False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    cmap = DIVERGING if isinstance(norm, TwoSlopeNorm) else SEQUENTIAL
    # Cells of a large matrix are smaller than a pixel; "none" would drop some of them.
    return axes.imshow(values, cmap=cmap, norm=norm, aspect="auto", interpolation="nearest")


def signed_norm(values: np.ndarray) -> Normalize:
    """Return a scale that is symmetric about 0, or from 0 up where nothing is negative."""
    most = float(np.abs(values).max()) or 1.0
    return TwoSlopeNorm(0.0, -most, most) if values.min() < 0 else Normalize(0.0, most)


def _short(name: object) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 1]}…"


__all__ = ["heat", "mean_codes_figure", "metrics_figure", "signed_norm"]
