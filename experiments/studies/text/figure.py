"""What codes tell and bring: the study's figure."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from latentcode.experiments.paper.measuring.drawing import KIND_STYLES
from latentcode.experiments.paper.reproduction import KIND_TITLES
from latentcode.experiments.studies.text.measuring import CRITERIA
from latentcode.figures.style import GREY, Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import where
from latentcode.tasks.text.patterns import INDUCTION

PARTS = {"operation": "place", "operands": "token"}
"""What a class says that arrived from a source which copies from elsewhere."""


def figures(tables: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Return what the induction pair's code tells of copying, by layer (A), and how often writing
    it brings the source's answer, where enough minimal pairs count (B): a colour per kind, controls
    in grey. Where sources that copy from elsewhere could be asked, which part of their answer
    arrived (C), a mark per seed."""
    telling = where(tables["telling"], pair=INDUCTION, label="copied")
    moving = where(tables["moving"], site="code", scope="pair")
    moving = moving[~moving["layers"].str.contains(",")
                    & (moving["least n"] >= CRITERIA["instances"])]
    arrived = _arrived(tables["elsewhere_classes"])
    with panels(1, 2 + bool(len(arrived)), 7.0 + 3.0 * bool(len(arrived)), 2.7) as (figure, grid):
        for kind, title in KIND_TITLES.items():
            color, marker = KIND_STYLES[kind]
            for axes, table, layer, value, control in (
                    (grid[0, 0], telling, "layer", "code", "untrained"),
                    (grid[0, 1], moving, "layers", "flip", "control")):
                own = where(table, kind=kind)
                if own.empty:
                    continue
                at = own[layer].astype(int)
                axes.fill_between(at, own["min"], own["max"], color=color, alpha=0.15, linewidth=0)
                axes.plot(at, own[value], color=color, marker=marker, markersize=4, label=title)
                axes.plot(at, own[control], color=GREY, marker=marker, markersize=3,
                          linestyle=":")
        grid[0, 0].set(xlabel="layer", ylabel="accuracy for `copied`",
                       title="A  probe (grey: untrained)")
        grid[0, 1].set(xlabel="layer", ylabel="answers that flip",
                       title="B  pair's code written (grey: control)")
        for axes in (grid[0, 0], grid[0, 1]):
            axes.xaxis.get_major_locator().set_params(integer=True)
        if moving.empty:
            grid[0, 1].text(0.5, 0.5, "too few minimal pairs count", ha="center", color=GREY,
                            transform=grid[0, 1].transAxes)
            grid[0, 1].set(xticks=[], yticks=[])
        if len(arrived):
            _draw_arrived(grid[0, 2], arrived)
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper")
    return {"text.png": figure}


def _arrived(classes: pd.DataFrame) -> pd.DataFrame:
    """Return how often the source's place (`operation`) and its tokens (`operands`) arrived, where
    all codes or all values of the upper layers were written and enough instances count."""
    if classes.empty:
        return classes
    chosen = classes[(classes["patch"] == "operation+operands")
                     & (classes["scope"] == "everything") & classes["site"].isin(["code", "value"])
                     & ~classes["layers"].str.startswith("0")
                     & classes["class"].isin(PARTS)]
    return chosen[chosen["n"] >= CRITERIA["instances"]]


def _draw_arrived(axes: Axes, arrived: pd.DataFrame) -> None:
    columns = [(site, name) for site in ("code", "value") for name in PARTS]
    kinds = list(KIND_TITLES)
    for index, kind in enumerate(kinds):
        color, marker = KIND_STYLES[kind]
        offset = 0.22 * (index - (len(kinds) - 1) / 2)
        for column, (site, name) in enumerate(columns):
            rates = where(arrived, kind=kind, site=site, **{"class": name})["rate"]
            axes.scatter([column + offset] * len(rates), rates, s=14, color=color, marker=marker,
                         alpha=0.8)
    layers = arrived["layers"].iloc[0]
    axes.set_xticks(range(len(columns)), [
        f"{site}s:\n{PARTS[name]}"
        for site, name in columns])
    axes.set(ylabel="answers", ylim=(-0.03, 1.03),
             title=f"C  from elsewhere (layer {layers})")
