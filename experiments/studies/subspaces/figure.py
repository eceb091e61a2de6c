"""Rates of every seed beside those of the controls."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from latentcode.experiments.studies.subspaces.rates import PLACE
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import blocks

_MARKERS = {"trained": (PALETTE[0], "o"), "shuffled": (PALETTE[1], "s"),
            "untrained": (PALETTE[2], "^"), "whole": (GREY, "D")}


def figures(tables: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Return the rates of every seed, a line per place and objective."""
    lines = list(blocks(tables["rates"], (*PLACE, "objective")))
    with panels(1, 1, 7.0, 0.42 * len(lines) + 1.2) as (drawn, ((axes,),)):
        for y, (_, block) in enumerate(lines):
            for name, (color, marker) in _MARKERS.items():
                axes.plot(block[name], [y] * len(block), linestyle="", color=color, marker=marker,
                          markersize=4, alpha=0.8, label=name if y == 0 else None)
        axes.set_yticks(range(len(lines)), [
            f"{n['task']} {n['kind']}, {n['site']} {n['layer']}: {n['objective']}"
            for n, _ in lines])
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set(xlim=(-0.03, 1.03), xlabel="rate of the objective's answer, held-out combinations")
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4)
    return {"rates.png": drawn}
