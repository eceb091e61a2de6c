"""The figures of the study, and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from latentcode.experiments.studies.codes_study.tables import Results, kinds_of
from latentcode.figures.markdown import markdown_of
from latentcode.figures.style import Figure, style
from latentcode.models.config import kind_of
from latentcode.probes.common.results import FIGURE
from latentcode.probes.interventions.figure import draw_rates, name_of
from latentcode.runs import Run
from latentcode.tasks import make_counterfactuals, make_task


def drawn(
    runs: Sequence[Run], found: Results, tables: Mapping[str, pd.DataFrame]
) -> dict[str, Figure]:
    """Return the figures of a study, by name: of all runs, and of the first run of each kind."""
    kinds = kinds_of(runs)
    figures = {"flips": flips_figure(tables["interventions"], kinds),
               "topography": found.topography.figure()}
    if len(found.topography.correlation):
        figures["generalization"] = found.topography.generalization_figure()
    if found.alignment is not None:
        figures |= {"alignment": found.alignment.figure(),
                    "transfer": found.alignment.transfer_figure()}
    for kind in kinds:
        first = next(run.name for run in runs if kind_of(run.config.model) == kind)
        figures |= {f"{kind}-decoding": found.decoded[first].figure(),
                    f"{kind}-cosines": found.similar[first].figure(),
                    f"{kind}-heads": found.similar[first].concentration_figure()}
        figures |= {f"{kind}-{'interventions' if name == FIGURE else name.removesuffix('.png')}":
                    figure for name, figure in found.caused[first].figures().items()}
    return figures


def flips_figure(table: pd.DataFrame, kinds: Sequence[str]) -> Figure:
    """Return maps of the flip rate, scope x layers, means over seeds: a column per kind.

    Above for the minimal pair's codes, below for the control's.
    """
    chosen = table[(table["metric"] == "flip") & (table["site"] == "code")
                   & ~table["renormalized"] & (table["heads"] == "all")]
    layers = list(dict.fromkeys(chosen["layers"]))
    scopes = list(dict.fromkeys(chosen["scope"]))
    with style():
        figure = Figure(figsize=((0.5 * len(layers) + 1.0) * len(kinds) + 0.6,
                                 2 * (0.3 * len(scopes) + 0.8)), layout="constrained")
        grid = figure.subplots(2, len(kinds), squeeze=False, sharex=True, sharey=True)
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


def page(tables: Mapping[str, pd.DataFrame], runs: Sequence[Run]) -> str:
    """Return the tables that a reader wants first, as Markdown."""
    task = make_task(runs[0].config.task)
    heads = tables["concentration"].pivot_table(
        index=["kind", "layer", "features"], columns="measure", values="value", sort=False)
    parts = [
        f"# What the codes of {task.name} models say, and what they cause",
        "Written by `python -m latentcode.experiments.studies.codes_study`; see its module for the "
        "commands. Numbers are means over runs of a kind, where there are several with the "
        "smallest and the largest in brackets; `tables/` has them, and every run with its "
        "intervals, clustered by combination.",
        "## The models", _markdown(tables["runs"]),
        "## Which labels can be read out (held-out combinations)",
        "Logistic probes on the code, beside the residual stream that enters the layer, the code "
        "of the untrained model, and shuffled labels.", _markdown(_decoded(tables["decoding"])),
        "## How many heads a code uses", _markdown(heads.reset_index().round(2)),
        "## Do close tasks have close codes?",
        "Representational similarity analysis (RSA): Spearman's rho of distances, "
        f"{tables['topography']['metric'].iloc[0]} distance of points.",
        _markdown(_distances(tables["topography"]))]
    if "alignment" in tables:
        parts += ["## Are the codes of different runs the same?",
                  _markdown(tables["alignment"])]
    parts += [
        "## What is caused: rates at which answers flip to the source's, or are unchanged",
        "Of single heads (`best one`) the one that flips most is shown, chosen on these same "
        "instances: an upper bound for any head alone. In a minimal pair the source's answer is "
        "also what its constituent answers to the instance: a flip does not tell which of the "
        "two arrived. " + " ".join(make_counterfactuals(task).notes),
        "![flip rates by scope and layers](figures/flips.png)",
        _markdown(_written(tables["interventions"], kinds_of(runs)))]
    return "\n\n".join(parts) + "\n"


def _decoded(decoding: pd.DataFrame) -> pd.DataFrame:
    """Return the headline scores of each kind, label and layer, features across."""
    headline = decoding[decoding["metric"].isin(["accuracy", "f1"])]
    cells = headline.assign(score=_with_range(headline, "value"))
    place = ["kind", "label", "layer"]
    table = cells.pivot_table(index=place, columns="features", values="score", aggfunc="first",
                              sort=False)
    table["chance"] = cells.groupby(place, sort=False)["chance"].first().map("{:.2f}".format)
    return table.reset_index()


def _distances(topography: pd.DataFrame) -> pd.DataFrame:
    """Return how distances of codes follow those of tasks, features across."""
    first = topography[topography["metric"] == topography["metric"].iloc[0]]
    return first.assign(rho=_with_range(first, "mean")).pivot_table(
        index=["kind", "label", "distance", "layer"], columns="features", values="rho",
        aggfunc="first", sort=False).reset_index()


def _written(interventions: pd.DataFrame, kinds: Sequence[str]) -> pd.DataFrame:
    """Return the rates of `flip` and `unchanged`, a row per intervention, two columns per kind."""
    rates = interventions[interventions["metric"].isin(["flip", "unchanged"])]
    shown = rates.assign(rate=_with_range(rates, "value"))
    shown["what"] = [name_of(r) for r in shown.itertuples()]
    table = shown.pivot_table(index="what", columns=["kind", "metric"], values="rate",
                              aggfunc="first", sort=False)
    table.columns = pd.Index([": ".join(map(str, names)) for names in table.columns])
    return table.reindex(columns=[f"{kind}: {metric}" for kind in kinds
                                  for metric in ("flip", "unchanged")]).reset_index()


def _with_range(table: pd.DataFrame, column: str) -> list[str]:
    """Return a column's means, with the smallest and the largest where there are several runs."""
    several = table[{"value": "n_runs", "mean": "count"}[column]] > 1
    return [f"{mean:.2f} ({low:.2f} to {high:.2f})" if more else f"{mean:.2f}"
            for mean, low, high, more in zip(
                table[column], table["min"], table["max"], several, strict=True)]


def _markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown; numbers to three digits."""
    def cell(value: object) -> str:
        if isinstance(value, float | np.floating):
            return "" if np.isnan(value) else f"{value:.3g}"
        return str(value)

    return markdown_of(table.map(cell))
