"""What the demo's page shows beside its words: tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from latentcode.config import LogicConfig
from latentcode.experiments.demo.asking import (
    ALL,
    AMONG,
    LEAST_COUNTED,
    PAIR,
    READINGS,
    ROW,
    Asked,
    Reading,
)
from latentcode.experiments.evidence.criteria import criteria
from latentcode.experiments.studies.curves import learning_curves
from latentcode.figures.style import GREY, Figure
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
)
from latentcode.probes.projection.figure import ScatterCell, scatter_figure
from latentcode.probes.projection.methods import fit_projection
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.tasks import make_task
from latentcode.tasks.logic.counterfactuals import LEAST_DIFFERENCE, WINDOWS

SHORT: Mapping[str, str] = {
    "code": "code", "untrained": "untrained model's", "shuffled": "shuffled labels",
    "residual": "residual stream"}
"""Features of the first table."""
CAUSES = (
    (AMONG, "carries the operation", "operation", "function", "operands", "the same function"),
    (ROW, "carries the operands", "operands", "query", "interchange", "the same query"),
    (ALL, "carries the answer", "answer", "whole answer", "operands", "the same function"))
"""Place, statement, class of answers, what the source has, the source that lacks it, and what that
has."""


def values(asked: Sequence[Asked]) -> dict[str, object]:
    """Return what the template is given of the models that were asked."""
    told_by = {reading: [one.name for one in asked if one.tells(reading)] for reading in READINGS}
    streams = [one.contrast(reading, "residual") for one in asked for reading in READINGS]

    def scores(some: Sequence[Asked], reading: Reading) -> list[float]:
        return [float(one.score(reading)["value"]) for one in some]

    def excess(some: Sequence[Asked], reading: Reading) -> list[float]:
        return [float(one.contrast(reading, one.nearest(reading))["value"]) for one in some]

    return {
        "asked": asked, "readings": list(READINGS), "told_by": told_by, "values": scores,
        "excess": excess,
        "told_in": [reading for reading, names in told_by.items() if names],
        "untold_in": [reading for reading in reversed(READINGS)
                      if len(told_by[reading]) < len(asked)],
        "stream": {"of": len(streams), "more": sum(row["high"] < 0.0 for row in streams),
                   "less": sum(row["low"] > 0.0 for row in streams)},
        "causes": CAUSES, "pair": PAIR, "least_counted": LEAST_COUNTED, "window": WINDOWS[0],
        "least_difference": LEAST_DIFFERENCE, "least": criteria("operation")["least"],
        "caveats": list(dict.fromkeys(
            f"{one.name}: {note}" for one in asked
            for result in one.decoded.values() for note in result.caveats))}


def tables(asked: Sequence[Asked], sraven: Run) -> dict[str, pd.DataFrame]:
    """Return the tables of the page, by name."""
    decoding = pd.concat([one.decoded[reading].summary().assign(model=one.name, shared=words)
                          for reading, words in READINGS.items() for one in asked])
    return {
        "found": pd.DataFrame([
            {"shared by all problems": words, "model": one.name, **{
                short: float(one.score(reading, features)["value"])
                for features, short in SHORT.items()}}
            for reading, words in READINGS.items() for one in asked]),
        "learned": pd.DataFrame([_how_good(one) for one in asked]),
        "decoding": decoding[["shared", "model", "layer", "code", "residual", "untrained",
                              "shuffled", "chance"]],
        "sraven": sraven.latest().reset_index()}


def _how_good(one: Asked) -> dict[str, object]:
    config, model, newest = one.run.config.task, one.run.config.model, one.run.newest_metrics()
    assert isinstance(config, LogicConfig)
    metric = make_task(config).headline
    return {"model": one.name, "updates": one.run.checkpoints()[-1], "width": model.d_model,
            "held out": f"{config.ood_fraction:.0%}",
            **{str(row.split): f"{row.mean:.3f} +- {row.se:.3f}"
               for row in newest[newest["metric"] == metric].itertuples()}}


def problem(run: Run) -> str:
    """Return a held-out problem of a run's task as HTML; all inputs vary in it."""
    task = make_task(getattr(make_task(run.config.task), "probe_config", run.config.task))
    return task.render(task.sample("ood", 1, make_generator(0, "demo instance")), 0, "html")


def curves(trained_here: Mapping[str, Run]) -> Figure:
    """Return R2 over training."""
    task = make_task(next(iter(trained_here.values())).config.task)
    return learning_curves(trained_here, task.headline, task.splits, low=-0.5)


def decoding(asked: Sequence[Asked]) -> Figure:
    """Return the score per layer: a row per reading, a column per model."""
    every = pd.concat([result.table for one in asked for result in one.decoded.values()])
    feature_sets, layers = features_in(every), layers_in(every)
    with panels(len(READINGS), len(asked), 2.0 * len(asked) + 1.9, 1.9 * len(READINGS) + 0.4,
                sharex=True, sharey=True) as (figure, grid):
        for row, reading in zip(grid, READINGS, strict=True):
            for axes, one in zip(row, asked, strict=True):
                points_per_layer(axes, one.decoded[reading].table, feature_sets, layers)
                axes.axhline(one.score(reading)["chance"], color=GREY, linestyle="--",
                             linewidth=1.0, zorder=1)
        grid[0, 0].set_ylim(-0.02, 1.02)
        name_panels(grid, [one.name for one in asked],
                    [f"{words}\nF1" for words in READINGS.values()], "layer")
        figure.legend(handles=feature_handles(feature_sets), loc="outside right upper")
    return figure


def projections(asked: Sequence[Asked], n: int) -> tuple[dict[str, Figure], dict[str, float]]:
    """Return how the first n held-out codes of the last layer lie, in both readings, coloured by
    the target and by the first term; and how trustworthy each projection is."""
    cells: dict[str, list[ScatterCell]] = {"target": [], "term_1": []}
    quality: dict[str, float] = {}
    for reading, words in READINGS.items():
        for one in asked:
            codes, pair = one.heldout[reading][:n], one.heldout[reading].pairs[0].name
            name = f"{one.name}, {words}"
            projection = fit_projection(codes.select(layer=codes.layers[-1], pair=pair),
                                        progress=bar(f"t-SNE {name}")).projection
            quality[name] = projection.quality["trustworthiness"]
            for label, drawn in cells.items():
                drawn.append(ScatterCell(words, one.name, projection.coordinates,
                                         codes.label(label, pair)))
    return {f"tsne-{label}": scatter_figure(drawn) for label, drawn in cells.items()}, quality
