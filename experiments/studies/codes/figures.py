"""The figures of the study: of all runs, and of the first run of each kind."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from latentcode.experiments.evidence.found import Found, Tables
from latentcode.figures.style import Figure
from latentcode.models.config import kind_of
from latentcode.probes.common.figures import panels
from latentcode.probes.interventions.figure import draw_rates


def drawn(tables: Tables, found: Found) -> dict[str, Figure]:
    """Return the figures, by file name: of all runs, and mean codes of the first run of each kind.
    """
    kinds = list(tables["runs"]["kind"].unique())
    first = {kind_of(run.config.model): similar
             for (run,), similar in reversed(found.results["similarity"])}
    return {"flips.png": flips_figure(tables["interventions"], kinds),
            **{f"{kind}-cosines.png": first[kind].figure() for kind in kinds}}


def flips_figure(table: pd.DataFrame, kinds: Sequence[str]) -> Figure:
    """Return maps of the flip rate, scope x layers, means over seeds: a column per kind.

    Above for the minimal pair's codes, below for the control's.
    """
    chosen = table[(table["metric"] == "flip") & (table["site"] == "code")
                   & ~table["renormalized"] & (table["heads"] == "all")]
    layers = list(dict.fromkeys(chosen["layers"]))
    scopes = list(dict.fromkeys(chosen["scope"]))
    with panels(2, len(kinds), (0.5 * len(layers) + 1.0) * len(kinds) + 0.6,
                2 * (0.3 * len(scopes) + 0.8), sharex=True, sharey=True) as (figure, grid):
        for row, (patch, name) in enumerate((
                ("interchange", "source"), ("control", "same constituents"))):
            for column, kind in enumerate(kinds):
                block = chosen[(chosen["kind"] == kind) & (chosen["patch"] == patch)]
                rates = block.pivot(index="scope", columns="layers", values="value")
                draw_rates(grid[row, column], rates.reindex(index=scopes, columns=layers))
                grid[row, column].set_title(f"{kind}: {name}")
        for axes in grid[-1]:
            axes.set_xlabel("layers")
        figure.suptitle("rate at which answers flip to the source's", fontsize=10)
    return figure
