"""The sections of the demo's page: what was found first, then what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from latentcode.config import LogicConfig
from latentcode.experiments.demo.asking import LEAST_COUNTED, READINGS, Asked
from latentcode.experiments.demo.findings import HOW, findings
from latentcode.experiments.demo.report import Block, Figure, Html, Section, Table, Text
from latentcode.experiments.studies.curves import learning_curves
from latentcode.experiments.studies.operation.criteria import CRITERIA
from latentcode.figures.style import GREY
from latentcode.figures.style import Figure as DrawnFigure
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


def found(asked: Sequence[Asked]) -> Section:
    """What was found, in sentences and one table."""
    rows = [{"shared by all problems": words, "model": one.name, **{
        short: f"{one.score(reading, features)['value']:.2f}" for features, short in SHORT.items()}}
        for reading, words in READINGS.items() for one in asked]
    return Section("What was found", [
        *(Text(text, opening=heading) for heading, text in findings(asked).items()),
        Table(pd.DataFrame(rows), "How well the terms of held-out functions are read (F1, last "
              "layer), from the code of the query attending to itself, from its controls, and "
              "from the residual stream that enters the layer."),
        Text("Clearly better means that the 95 % intervals do not overlap. There is one model of "
             "each name, so nothing here ranks kinds of attention. Where codes are written was "
             "chosen after a study of the same models of the zoo.")])


def idea() -> Section:
    """Equation 1, and why codes might configure operations."""
    return Section("The idea", [
        Text("An attention layer adds up, for a query q, what its heads make of every key k. "
             "Ordered by pairs instead of heads it is a hypernetwork: the scores over the heads, "
             "a[:, q, k], are a latent code that generates a value network for that pair."),
        Text("MHA_q(X) = sum_k W_qk x_k,   W_qk = sum_h a_hqk W_out^h W_value^h", True),
        Text("HYLA puts a nonlinearity into that value network and normalises the code over the "
             "heads. If codes configure operations, then the operation should be readable "
             "from the code, also for functions that are new combinations of known terms.")])


def learned(asked: Sequence[Asked], trained_here: Mapping[str, Run]) -> Section:
    """What the models learn: a problem, curves of those trained here, R2 of all."""
    run = asked[0].run
    own = make_task(run.config.task)
    task = make_task(own.probe_config)
    batch = task.sample("ood", 1, make_generator(0, "demo instance"))
    return Section("What the models learn", [
        Html(task.render(batch, 0, "html"), "One held-out problem: the model sees the examples and "
             "the query's inputs, and predicts its value."),
        Figure(learning_curves(trained_here, task.headline, task.splits, low=-0.5),
               "R2 over training, with bands of two standard errors, of the models trained here. "
               "test: fresh instances of training functions; ood: held-out combinations of known "
               "terms; unknown: terms never trained on. R2 is averaged over instances, as in the "
               "paper; functions that vary little among their examples pull it far down.",
               "curves"),
        Table(pd.DataFrame([_how_good(one.run, one.name, task.headline) for one in asked]),
              "R2 at the end, with standard errors. Models that hold out other shares of the "
              "combinations are not comparable, and one model of each says nothing about which "
              "attention is better.")])


def _how_good(run: Run, name: str, metric: str) -> dict[str, object]:
    config, model = run.config.task, run.config.model
    assert isinstance(config, LogicConfig)
    newest = run.newest_metrics()
    return {"model": name, "updates": run.checkpoints()[-1], "width": model.d_model,
            "held out": f"{config.ood_fraction:.0%}",
            **{str(row.split): f"{row.mean:.3f} +- {row.se:.3f}"
               for row in newest[newest["metric"] == metric].itertuples()}}


def decoding(asked: Sequence[Asked]) -> Section:
    """What the codes say, beside the controls."""
    tables = [one.decoded[reading].summary().assign(model=one.name, shared=words)
              for reading, words in READINGS.items() for one in asked]
    table = pd.concat(tables)[["shared", "model", "layer", "code", "residual", "untrained",
                               "shuffled", "chance"]]
    blocks: list[Block] = [
        Text("Logistic probes for the terms are fitted on codes of the query attending to itself, "
             "on training functions, and scored on held-out ones. Codes are read twice: "
             f"{HOW['fixed_query']}; and {HOW['fixed_context']}, as in the paper. Beside them "
             "stand the same probes on the codes of the untrained model, with shuffled labels, "
             "and on the residual stream at the query, which is what the layer starts from: what "
             "a code says matters as far as it exceeds these. Intervals are 95 %, over held-out "
             "combinations. The best constant answer is to name every term."),
        Text("Before layer 0 the query has seen no example. With one query for all problems, what "
             "depends on the query alone is the same in all of them, such as the stream that "
             "enters layer 0, and HYLA's code there: nothing can be read from it, and F1 is 0."),
        Figure(_decoding_figure(asked), "F1 of the terms per layer. Dashed: the best constant "
               "answer.", "decoding"),
        Table(table, "The same in numbers.")]
    caveats = dict.fromkeys(f"{one.name}: {note}" for one in asked
                            for result in one.decoded.values() for note in result.caveats)
    return Section("What the codes say", [*blocks, *map(Text, caveats)])


def _decoding_figure(asked: Sequence[Asked]) -> DrawnFigure:
    """Draw the score per layer: a row per reading, a column per model."""
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


def projections(asked: Sequence[Asked], n_projected: int) -> Section:
    """How the codes of the last layer lie, in both readings."""
    cells: dict[str, list[ScatterCell]] = {"target": [], "term_1": []}
    qualities = []
    for reading, words in READINGS.items():
        for one in asked:
            codes, pair = one.heldout[reading][:n_projected], one.heldout[reading].pairs[0].name
            projection = fit_projection(codes.select(layer=codes.layers[-1], pair=pair),
                                        progress=bar(f"t-SNE {one.name}, {words}")).projection
            qualities.append(f"{one.name}, {words}: {projection.quality['trustworthiness']:.3f}")
            for label, drawn in cells.items():
                drawn.append(ScatterCell(words, one.name, projection.coordinates,
                                         codes.label(label, pair)))
    return Section("How the codes lie", [
        Figure(scatter_figure(cells["target"]), "t-SNE of the last layer's codes of held-out "
               "functions, coloured by the value of the function at the query.", "tsne-target"),
        Figure(scatter_figure(cells["term_1"]), "The same points, coloured by the first term of "
               "the function.", "tsne-term_1"),
        Text(f"t-SNE of the first {n_projected:,} held-out codes, perplexity 30, seed 0. "
             f"Trustworthiness: {'; '.join(qualities)}.")])


def causing(asked: Sequence[Asked]) -> Section:
    """What becomes of the answers if codes of another problem are written."""
    blocks: list[Block] = [
        Text("Here codes are not read but written: those that the model computes for another "
             "problem, the source, replace its own. The source has another function, another "
             "query, both, or nothing in common with the instance. All inputs vary, as in "
             "training. An answer is the instance's own, that of the source's function at the "
             "instance's query, that of the instance's function at the source's query, or the "
             f"source's, if it is nearer to it than {WINDOWS[0]}; these four differ by at least "
             f"{LEAST_DIFFERENCE}. Answers that have nothing to do with the instance fall near "
             "one of them, too: see the source that shares nothing. Codes bring something, in "
             f"the words at the top, if its share is by at least {CRITERIA['least']:.2f} above "
             "that of each source that lacks it, and the 95 % interval of the difference is "
             "above 0."),
        Text("In layer 0 the codes among the examples are computed directly from these, so that "
             "writing all of them is close to exchanging the examples. With codes, values and "
             "residual streams all that an answer depends on is written: the source's answer has "
             "to come.")]
    for one in asked:
        if one.written is None or not one.answers_enough:
            blocks.append(Text(f"{one.name}: {one.n_counted} problems count, fewer than "
                               f"{LEAST_COUNTED}; there is no table."))
            continue
        blocks += [
            Figure(one.written.figure(), f"{one.name}: whose answer comes. base: its own; "
                   "operation: the source's function; operands: the source's query; answer: the "
                   "source's answer.", f"interventions-{one.folder}"),
            Table(one.rates(), f"{one.name}: shares of answers, with 95 % intervals over held-out "
                  "combinations."),
            Text(one.written.caveats[0])]
    return Section("What the codes cause", blocks)


def sraven(run: Run) -> Section:
    """A problem of the other task, and that its path works."""
    task = make_task(run.config.task)
    batch = task.sample("ood", 1, make_generator(0, "demo instance"))
    return Section("SRAVEN", [
        Html(task.render(batch, 0, "html"), "A small symbolic Raven matrix from a held-out "
             "combination of rules."),
        Table(run.latest(), f"A model trained for {run.config.training.steps} steps, which only "
              "shows that the path works: nothing is learned in that time.", index=True)])
