"""The page of the study, and its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from latentcode.experiments.studies.rows.jobs import Job
from latentcode.experiments.studies.rows.readings import readings
from latentcode.experiments.studies.rows.tables import cells, headline, ranged
from latentcode.figures.markdown import markdown_of, markdown_table
from latentcode.figures.style import PALETTE, Figure
from latentcode.probes.common.figures import name_panels, panels
from latentcode.probes.common.results import where
from latentcode.probes.decoding.features_figure import gains_figure, scores_figure
from latentcode.probes.decoding.naming import parted
from latentcode.tasks import make_task

PLACE = ("kind", "features", "layer")
NAMING = ("part", "kind", "seed", "step", "inputs")
"""Columns that name a model, and what it is asked about."""
PAIR = "the paper's pair"
HOW = """\
Logistic probes are fitted on training combinations and scored on held-out ones. All features are
reduced to the same number of dimensions, at most 128 or 16 (`dimensions` in the tables): by a fixed
random projection to 512 where they are wider, then onto the principal axes of the training
instances. These axes are those that vary most: where features score lower than a part of them does,
the reduction left the rest out.

Each cell is trained / untrained / shuffled. Untrained: the same features of the initial weights;
shuffled: the trained features with labels of other instances or, under gains, the features of
another instance. A dash says that the features of the initial weights do not vary. `tables/` has
every number with its interval (95 %, clustered by held-out combination), balanced accuracy and
macro F1, and the score of the best constant answer, which knows the held-out shares and so is an
oracle."""
GAINS = """\
Held-out log loss gained, in nats, over a probe that knows the answer alone, or the answer and both
operands. The gain over the answer includes what operands and answer together tell of the rule; the
gain over both does not. A probe pays for reading noise; how much, the third number says."""


def page(tables: Mapping[str, pd.DataFrame], asked: Sequence[Job]) -> str:
    """Return what a reader wants first, as Markdown."""
    scores, given = headline(tables["scores"]), tables["given"]
    parts = [
        "# Do rows say the operation, its operands, or the answer?",
        "Written by `python -m latentcode.experiments.studies.rows`; see its module for the "
        "command.", HOW, "## What they show",
        "Smallest to largest over kinds and seeds, in 128 dimensions, accuracy where nothing else "
        "is said.", "\n".join(readings(tables)), "## The models", _models(asked)]
    for width in (128, 16):
        block = where(scores, part="sraven", width=width)
        if len(block):
            parts += [f"## SRAVEN models that know every rule, {width} dimensions",
                      "Accuracy for the last response token; over seeds the mean (smallest to "
                      "largest). " + _nulls(block), _table(cells(block, PLACE, "label", "value"))]
    block = where(given, part="sraven", width=128)
    if len(block):
        parts += ["## The rule beyond the answer", GAINS + " " + _known(block),
                  _table(cells(block, PLACE, "given", "gain"))]
    logic = where(scores, part="logic", width=128)
    if len(logic):
        parts += ["## Fuzzy logic at the published setting: one context, or one query",
                  "`fixed_context`: all instances share the examples' inputs, and the query varies "
                  "(the paper's reading); `fixed_query`: the reverse. F1 of `terms`, accuracy of "
                  "the others. The operand is the query with its inputs rounded to 0 and 1. "
                  + _nulls(logic),
                  _table(cells(logic, ("inputs", *PLACE), "label", "value")),
                  "Log loss gained over the answer's bin, for the lower term. Where the third "
                  "number is above 0, what is known alone was fitted too closely to the training "
                  "combinations, and as much of a gain is nobody's.",
                  _table(cells(where(given, part="logic", width=128), ("inputs", *PLACE), "given",
                               "gain"))]
    moments = along(scores)
    if len(moments):
        parts += ["## When? Along the training of the first seeds",
                  "Accuracy in 128 dimensions. Step 0 is the untrained model.",
                  "![accuracy over updates](figures/milestones.png)",
                  _table(_over_steps(moments))]
    return "\n\n".join(parts) + "\n"


def drawn(tables: Mapping[str, pd.DataFrame], asked: Sequence[Job]) -> dict[str, Figure]:
    """Return the figures of the first seeds, of fuzzy logic, and of the milestones."""
    figures: dict[str, Figure] = {}
    for job in asked:
        if job.about["part"] == "logic" or (
                job.about["part"] == "sraven" and job.about["seed"] == 0):
            which = {"inputs": "", **job.about}
            scores, given = (
                where(table, **{name: which[name] for name in NAMING}).assign(pair=PAIR)
                for table in (headline(tables["scores"]), tables["given"]))
            figures[f"{job.name}.png"] = scores_figure(scores)
            if len(given):
                figures[f"{job.name}-given.png"] = gains_figure(given)
    moments = along(headline(tables["scores"]))
    return figures | ({"milestones.png": milestones_figure(moments)} if len(moments) else {})


def along(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of first seeds over updates, those of the ends included; empty without."""
    scores = parted(scores)
    milestones = where(scores, part="milestones", model="trained")
    ends = where(scores, part="sraven", seed=0, width=128)
    ends = ends[ends["features"].isin(milestones["features"].unique())]
    start = where(ends, model="untrained").assign(step=0)
    return pd.concat([start, milestones, where(ends, model="trained")]) if len(
        milestones) else milestones


def milestones_figure(moments: pd.DataFrame) -> Figure:
    """Return accuracy over updates: a row per kind, features across, a line per label; the
    deeper the layer, the darker."""
    kinds, feature_sets = moments["kind"].unique(), moments["features"].unique()
    labels, layers = list(moments["label"].unique()), sorted(moments["layer"].unique())
    with panels(len(kinds), len(feature_sets), 2.6 * len(feature_sets) + 1.4,
                1.9 * len(kinds) + 0.5, sharex=True, sharey=True) as (figure, grid):
        for row, kind in enumerate(kinds):
            for column, features in enumerate(feature_sets):
                for label, color in zip(labels, PALETTE, strict=False):
                    for depth, layer in enumerate(layers):
                        line = where(moments, kind=kind, features=features, label=label,
                                     layer=layer).sort_values("step")
                        grid[row, column].plot(
                            line["step"], line["value"], color=color, marker="o", markersize=2.5,
                            alpha=(depth + 1) / len(layers),
                            label=label if layer == layers[-1] else None)
        name_panels(grid, list(feature_sets), [f"{kind}\naccuracy" for kind in kinds], "updates")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right upper",
                      title=f"layer {layers[0]} faint,\n{layers[-1]} full")
    return figure


def _over_steps(moments: pd.DataFrame) -> pd.DataFrame:
    """Return the last layer's accuracies: a row per kind, features and label, a column per step."""
    last = where(moments, layer=max(moments["layer"]))
    table = last.pivot_table(index=["kind", "features", "label"], columns="step", values="value",
                             sort=False).sort_index(axis=1)
    return table.map("{:.2f}".format, na_action="ignore").fillna("").reset_index()


def _models(asked: Sequence[Job]) -> str:
    rows = {(job.about["kind"], job.about["run"]): job.run for job in asked
            if job.about["part"] != "milestones"}
    table = []
    for (kind, name), run in rows.items():
        metric = make_task(run.config.task).headline
        score = run.newest("ood", metric)
        table.append([name, kind, run.checkpoints()[-1],
                      "" if score is None else f"{metric} {score.mean:.3f}"])
    return markdown_table(["run", "kind", "updates", "held-out"], table)


def _nulls(block: pd.DataFrame) -> str:
    """Say what the best answer scores that has read nothing."""
    said = [f"{label} {ranged(where(block, label=label)['chance'])}"
            for label in block["label"].unique()]
    return f"The best constant answer scores: {'; '.join(said)}."


def _known(block: pd.DataFrame) -> str:
    said = [f"{ranged(where(block, given=name)['known'])} with {name}"
            for name in block["given"].unique()]
    return f"The log loss without features is {', '.join(said)}."


def _table(table: pd.DataFrame) -> str:
    return markdown_of(table.fillna(""))
