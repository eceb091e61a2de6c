"""Variances over their targets, then gradient norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from latentcode.experiments.studies.hyla_variance.measuring import geometric
from latentcode.figures.style import GREY, MARKERS, PALETTE, Figure, category_styles, style


def figures(tables: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Return variances over their targets, then gradient norms: whole model, and the weights of the
    codes in each layer."""
    gradients = tables["gradients"]
    layers = [layer for layer in gradients["layer"].unique() if layer != "all"]
    curves = [("all", "all", "whole model"), *(
        (layer, "code", f"queries and keys, layer {layer}") for layer in layers)]
    with style():
        figure = Figure(figsize=(9.6, 6.4), layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=[1.0, 1.05])
        top, bottom = halves
        _draw_variances(top.subplots(1, 2, sharey=True), tables["variance"])
        kinds = category_styles(list(gradients["kind"].unique()))
        for axes, (layer, part, name) in zip(
                bottom.subplots(1, len(curves), sharey=True), curves, strict=True):
            rows = gradients[(gradients["layer"] == layer) & (gradients["part"] == part)]
            for kind, (color, marker) in kinds.items():
                mean = rows[rows["kind"] == kind].groupby("step")["mean"].apply(geometric)
                axes.plot(mean.index, mean, color=color, marker=marker, markersize=3.0,
                          markevery=2, linewidth=1.0)
            axes.set(yscale="log", xlabel="update", title=name)
        bottom.axes[0].set_ylabel("gradient norm")
        bottom.legend(handles=[
            Line2D([], [], color=color, marker=marker, markersize=3.5, label=str(kind))
            for kind, (color, marker) in kinds.items()], loc="outside right center",
            fontsize=7.5)
    return {"hyla_variance.png": figure}


def _draw_variances(panels: Sequence[Axes], variance: pd.DataFrame) -> None:
    tasks = list(variance["task"].unique())
    for axes, (title, wanted) in zip(panels, (
            ("generated weights at initialisation", lambda q: q.startswith("weights")),
            ("output of the attention at initialisation", lambda q: q == "output")), strict=True):
        rows = variance[variance["quantity"].map(wanted)]
        quantities = sorted(rows["quantity"].unique())
        for i, kind in enumerate(variance["kind"].unique()):
            for j, quantity in enumerate(quantities):
                for k, task in enumerate(tasks):
                    mine = rows[(rows["kind"] == kind) & (rows["quantity"] == quantity)
                                & (rows["task"] == task)]
                    shift = 0.22 * (j - (len(quantities) - 1) / 2) + 0.08 * (k - 0.5)
                    axes.scatter(np.full(len(mine), i + shift), mine["ratio"], s=9.0,
                                 color=PALETTE[k], marker=MARKERS[j], linewidths=0)
        axes.axhline(1.0, color=GREY, linestyle="--", linewidth=1.0)
        names = list(variance["kind"].unique())
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7.5)
        axes.set(yscale="log", title=title)
        handles = [Line2D([], [], color=PALETTE[k], marker="o", linestyle="", markersize=4,
                          label=task) for k, task in enumerate(tasks)]
        if len(quantities) > 1:
            handles += [Line2D([], [], color="black", marker=MARKERS[j], linestyle="",
                               markersize=4, label=quantity.replace("_", " "))
                        for j, quantity in enumerate(quantities)]
        axes.legend(handles=handles, fontsize=7, ncols=2)
    panels[0].set_ylabel("variance / target")
