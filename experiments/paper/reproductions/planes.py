"""Fig. 2D, 5A, 5B, A2, A6 and A7: t-SNE planes of codes, and the labels that neighbours share.

A picture of clusters is judged by the share of a point's 15 nearest neighbours that have its label,
above what shuffled labels give, and by reach, how far the points of a plane tell their class:

    reach = (a - a0) / (1 - a0)

a is the balanced accuracy of a vote among a point's 15 nearest neighbours, a0 that of shuffled
labels: 0 where places tell nothing of the class, 1 where they tell it wholly. Why it was chosen
among other measures says `experiments/results/earlier.md`. Every number is a mean over points, so
that its interval comes from resampling the combinations that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentcode.errors import ProbeError, check
from latentcode.experiments.paper.claims import Claim, Setting
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    Findings,
    Reproduction,
    Work,
    about,
    by_preset,
    caveat,
    controls_of,
    nothing,
    per_kind,
    titled,
)
from latentcode.experiments.paper.reproductions.decoded import (
    NOTE,
    PUBLISHED,
    READINGS,
    SHOWS,
    SMOKE,
    SUFFIXES,
    TITLES,
    reading,
    runs_by_setting,
)
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.panels import ScatterCell, scatter_figure
from latentcode.figures.style import Figure
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import mean_and_interval, no_null, shuffled_classes
from latentcode.probes.knn_purity import nearest
from latentcode.probes.projection import (
    AGREEMENT_SHUFFLES,
    MOST_NEIGHBORS,
    ProjectionResult,
    project,
)
from latentcode.runs import Run
from latentcode.tasks import make_task

OF_A2: dict[str, tuple[Setting, ...]] = {
    "paper": (PUBLISHED,), "small": (PUBLISHED,), "smoke": (SMOKE,)}
OF_5AB = by_preset("sraven", small=("training.steps=9000",))
OF_A6 = by_preset("sraven", paper=("training.steps=312500",), small=("training.steps=9000",))
OF_A7 = {"paper": (Setting("paper", "sraven", ("kind=softmax", "model.n_layers=16",
                                               "training.steps=312500")),),
         "small": (),
         "smoke": (Setting("smoke", "sraven", ("kind=softmax", "model.n_layers=9")),)}
CLAIMED = ("function", "term 1", "term 2")
"""Labels of Fig. A2: each of them has to pass in each layer."""
ENDS = 4
"""Layers of Fig. A7 that count as early ones, and as the last ones."""
ABOVE = ("Share of the 15 nearest neighbours {} above that of shuffled {}, in the plane of the "
         "last layer")
N: Mapping[str, int] = {"paper": 2_000, "small": 1_000, "smoke": 100}
"""Codes in a plane, by preset."""
N_BOOTSTRAP = 1_000
IN_BRACKETS = "In brackets below the panels: the same of labels shuffled among combinations."
PICTURES = "The pictures are of the first run of each kind, the numbers of all."
NO_PLANE = "A layer whose codes are the same for all instances has no plane."
"""What a reader must know of several figures."""


@dataclass(frozen=True)
class Label:
    """A label that neighbours can share.

    Attributes:
        name: In words.
        column: Of the coordinates of a projection.
        among: What labels are shuffled among: where a label names the combination itself,
            shuffling combinations would only rename the clusters.
        classes: How many classes of equal size a measurement is put in.
    """

    name: str
    column: str
    among: Literal["combinations", "instances"] = "combinations"
    classes: int | None = None

    def classes_of(self, points: pd.DataFrame) -> np.ndarray:
        """Return the class of each point, int [N]."""
        values = points[self.column]
        if self.classes is None:
            return np.asarray(pd.factorize(values.astype(str))[0])
        ranks = values.rank(method="first").to_numpy() - 1
        return np.asarray(ranks * self.classes // len(ranks), dtype=np.int64)


LOGIC: Mapping[str, Label] = {label.name: label for label in (
    Label("target", "target", "instances", classes=5),
    Label("function", "combination", "instances"),
    Label("term 1", "term_1"), Label("term 2", "term_2"))}
SRAVEN: Mapping[str, Label] = {label.name: label for label in (
    Label("target", "target"), Label("rule", "rule"))}


@dataclass(frozen=True)
class Planes:
    """The planes of one run, one per layer whose codes vary.

    Attributes:
        about: The columns that name the run; of fuzzy logic also `inputs`, what all instances
            share, `fixed_context` or `fixed_query`.
        run: The run.
        points: Coordinates and labels, a row per layer and point.
        clusters: The combination of each point, int [N].
        shared: Layer -> label -> the columns of `neighbours` [N].
    """

    about: Mapping[str, Any]
    run: Run
    points: pd.DataFrame
    clusters: np.ndarray
    shared: Mapping[int, Mapping[str, pd.DataFrame]]

    @property
    def layers(self) -> list[int]:
        """The layers that have a plane, in rising order."""
        return sorted(self.shared)

    def row(self, values: np.ndarray) -> dict[str, Any]:
        """Return the columns of evidence: the mean of values [N], and its interval."""
        value, low, high, _ = mean_and_interval(values, self.clusters, N_BOOTSTRAP, 0)
        return {**self.about, "value": float(value), "low": float(low), "high": float(high)}

    def target_over_rule(self, layers: Sequence[int]) -> np.ndarray:
        """Return per point the excess of the target less that of the rule, mean over layers."""
        return np.asarray(np.mean([self.shared[layer]["target"]["excess"]
                                   - self.shared[layer]["rule"]["excess"] for layer in layers], 0))

    def early_less_late(self, n: int) -> dict[str, Any]:
        """Return the row of evidence of `target_over_rule` in the first n layers less the last."""
        return self.row(self.target_over_rule(self.layers[:n])
                        - self.target_over_rule(self.layers[-n:]))


def projected(run: Run, *, inputs: str, n: int, device: str) -> ProjectionResult:
    """Return the t-SNE planes of held-out codes, a point per problem; `inputs` as in `Planes`."""
    config = make_task(run.config.task).probe_config
    labels = ("term_1", "term_2") if config.name == "logic" else ("rule", "target")
    problems = replace(config, inputs=inputs) if inputs else config
    return project(run, problems, labels=labels, n=n, device=device)


def planes(
    work: Work, runs: Iterable[tuple[str, Run]], labels: Mapping[str, Label], inputs: str = ""
) -> list[Planes]:
    """Return the t-SNE planes of held-out codes of some runs, and how their neighbours agree."""
    measured = []
    for member, run in runs:
        points = work.measured(run, projected, ProjectionResult, inputs=inputs,
                               n=N[work.preset]).coordinates
        of_layer = {layer: where(points, layer=layer) for layer in points["layer"].unique()}
        first, *_ = of_layer.values()
        clusters = pd.factorize(first["combination"].astype(str))[0]
        named = about(member, run) | ({"inputs": inputs} if inputs else {})
        measured.append(Planes(named, run, points, clusters, {
            int(layer): {name: neighbours(plane, label, clusters)
                         for name, label in labels.items()}
            for layer, plane in of_layer.items()}))
    return measured


def neighbours(plane: pd.DataFrame, label: Label, clusters: np.ndarray) -> pd.DataFrame:
    """Return what the nearest neighbours of the points of a plane tell of their label, per point.

    `share` of them that have its class; `excess` of that over shuffled labels; `reach`, whose mean
    is (a - a0) / (1 - a0). A class that shares the first place of a vote with others counts in
    part, and every class weighs the same, however common it is.
    """
    kind = label.classes_of(plane)
    groups = clusters if label.among == "combinations" else np.arange(len(plane))
    near = nearest(plane[["projection_x", "projection_y"]].to_numpy(),
                   min(MOST_NEIGHBORS, (len(plane) - 1) // 2))
    shuffles = shuffled_classes(kind, groups, np.random.default_rng(0), AGREEMENT_SHUFFLES)
    check(len(shuffles) > 0, no_null(label.name), ProbeError)

    def shares_and_votes(kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes = np.bincount(kind)
        counts = np.zeros((len(kind), len(sizes)), dtype=np.int64)
        np.add.at(counts, (np.arange(len(kind))[:, None], kind[near]), 1)
        share = counts[np.arange(len(kind)), kind] / near.shape[1]
        first = counts == counts.max(axis=1, keepdims=True)
        right = first[np.arange(len(kind)), kind] / first.sum(axis=1)
        return share, right * len(kind) / (np.count_nonzero(sizes) * sizes[kind])

    share, vote = shares_and_votes(kind)
    chance, vote_by_chance = np.mean([shares_and_votes(shuffled) for shuffled in shuffles], axis=0)
    return pd.DataFrame({"share": share, "excess": share - chance,
                         "reach": (vote - vote_by_chance) / (1.0 - vote_by_chance.mean())})


def agreement_table(measured: Iterable[Planes], *, last_alone: bool = False) -> pd.DataFrame:
    """Return a row per run, layer and label: `agreement`, `shuffled`, and their difference; and
    `reach`, with its interval."""
    rows = []
    for each in measured:
        layers = each.layers[-1:] if last_alone else each.layers
        for layer, label in product(layers, each.shared[each.layers[0]]):
            shared = each.shared[layer][label]
            share, excess = shared["share"].mean(), shared["excess"].mean()
            reach = each.row(shared["reach"].to_numpy())
            rows.append(each.row(shared["excess"].to_numpy()) | {
                "layer": layer, "label": label, "agreement": share, "shuffled": share - excess,
                "n": len(shared), "reach": reach["value"], "reach_low": reach["low"],
                "reach_high": reach["high"]})
    return pd.DataFrame(rows)


def first_of_each(measured: Sequence[Planes]) -> list[Planes]:
    """Return the first run of each kind, of which the pictures are; of each inputs, in turn."""
    chosen: dict[str, dict[str, Planes]] = {}
    for each in measured:
        chosen.setdefault(each.about.get("inputs", ""), {}).setdefault(each.about["kind"], each)
    return [kinds[kind] for kinds in chosen.values() for kind in KIND_TITLES if kind in kinds]


def points_table(measured: Sequence[Planes], *, last_alone: bool = False) -> pd.DataFrame:
    """Return the points behind a picture, with few digits: of the first run of each kind."""
    parts = []
    for each in first_of_each(measured):
        points = each.points[each.points["layer"] == each.layers[-1]] if last_alone else each.points
        # Terms follow from the combination; of rules the last token's cannot be told from it.
        label = "rule" if "rule" in points else "combination"
        named = {name: each.about[name] for name in ("inputs", "kind") if name in each.about}
        parts.append(pd.DataFrame({
            **named, "layer": points["layer"], "x": points["projection_x"].round(1),
            "y": points["projection_y"].round(1), "target": points["target"].round(2),
            label: points[label]}))
    return pd.concat(parts, ignore_index=True)


def planes_figure(
    measured: Sequence[Planes], labels: Iterable[Label], *, last_alone: bool = False,
    layers_across: bool = False, title: str = "", inputs: Mapping[str, str] | None = None,
) -> Figure:
    """Return a panel per label and layer (down) and kind (across), of the first run of each.

    Below each panel stands the share of neighbours that agree, in brackets that of shuffled labels.

    Args:
        measured: Planes of all runs.
        labels: The labels that colour the points.
        last_alone: Draw the last layer alone.
        layers_across: Layers across, for a single kind.
        title: Of the figure.
        inputs: Of several inputs, side by side: what each is called above its panels.
    """
    shown = first_of_each(measured)
    layers = sorted({layer for each in shown for layer in each.layers})
    cells = []
    for label, layer, each in product(labels, layers[-1:] if last_alone else layers, shown):
        if layer not in each.shared:
            continue
        plane, shared = where(each.points, layer=layer), each.shared[layer][label.name].mean()
        kind, number = KIND_TITLES[each.about["kind"]], f"layer {layer}"
        kind += f"\n{inputs[each.about['inputs']]}" if inputs else ""
        down = label.name if last_alone or layers_across else f"{label.name}\n{number}"
        cells.append(ScatterCell(
            down, number if layers_across else kind,
            plane[["projection_x", "projection_y"]].to_numpy(),
            plane[label.column].rename(label.name),
            f"neighbours {shared['share']:.2f} ({shared['share'] - shared['excess']:.2f})"))
    figure = scatter_figure(cells, continuous=["target"])
    if title:
        figure.suptitle(title, fontsize=9.5)
    return figure


def plane_evidence(claim: Claim, measured: Iterable[Planes]) -> pd.DataFrame:
    """Return a row per run of what a claim says of planes, each with its interval.

    Of the last layer: how far places tell the function or rule, how often neighbours agree on it,
    or by how much more than on the target. Of Fig. A2: every layer and claimed label. Of early
    layers: see `Planes.early_less_late`.
    """
    rows: list[dict[str, Any]] = []
    for each in measured:
        if claim.result == "figA2":
            rows += [each.row(each.shared[layer][label]["excess"].to_numpy())
                     | {"member": f"{each.about['member']}: layer {layer}, {label}"}
                     for layer in each.layers for label in CLAIMED]
            continue
        if "early" in claim.id:
            n = 1 if claim.result == "figA6" else ENDS
            rows += [each.early_less_late(n)] if len(each.layers) > 1 or n > 1 else []
            continue
        last = each.shared[each.layers[-1]]
        label = "rule" if "rule" in last else "function"
        if "-reach-" in claim.id:
            values = last[label]["reach"]
        elif claim.id.endswith("target-explains-less"):
            values = last[label]["excess"] - last["target"]["excess"]
        else:
            values = last["term 1" if claim.id.endswith("by-first-term") else label]["excess"]
        rows.append(each.row(values.to_numpy()))
    return evidence(rows, control=controls_of(claim)[0])


def fig2d(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on function, term and target."""
    tables, figures, raw, sentences = {}, {}, {}, []
    judged: dict[str, pd.DataFrame] = {}
    for setting, runs in runs_by_setting(work):
        measured = {inputs: planes(work, runs, LOGIC, inputs) for inputs in READINGS}
        every = [each for of_inputs in measured.values() for each in of_inputs]
        suffix = SUFFIXES.get(setting, "")
        last = agreement_table(every, last_alone=True)
        tables[f"neighbours{suffix}"] = last
        figures[f"fig2d{suffix}"] = planes_figure(
            every, [LOGIC["target"], LOGIC["function"], LOGIC["term 1"]], last_alone=True,
            inputs=READINGS, title=TITLES[setting] if suffix else "")
        raw[f"points{suffix}"] = points_table(every, last_alone=True)
        for inputs, shared in READINGS.items():
            place = f"{TITLES[setting]}, {shared}" if suffix else shared
            rows = where(last, inputs=inputs)
            sentences.append(f"{place[0].upper()}{place[1:]}: " + "; ".join(
                f"{label} {per_kind(where(rows, label=label), runs=label == 'target')}"
                for label in LOGIC) + ".")
        judged |= {claim.id: plane_evidence(claim, measured[reading(claim)])
                   for claim in work.claims if claim.setting == setting}
    if not tables:
        return nothing("fuzzy logic")
    return Findings(
        summary=f"{ABOVE.format('with the same label', 'labels')}. {' '.join(sentences)}",
        tables=tables, figures=figures, evidence=judged,
        notes=(NOTE,
               "In brackets below the panels: the same of shuffled labels. Agreement on the target "
               "is that of five classes of equal size.",
               PICTURES),
        raw=raw)


def figA2(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on function, terms and target."""
    runs = list(work.runs_of(OF_A2[work.preset]))
    if not runs:
        return nothing("fuzzy logic")
    measured = {inputs: planes(work, runs, LOGIC, inputs) for inputs in READINGS}
    tables = {inputs: agreement_table(of_inputs) for inputs, of_inputs in measured.items()}
    sentences = []
    for inputs, shared in READINGS.items():
        claimed = tables[inputs][tables[inputs]["label"].isin(CLAIMED)]
        largest = claimed.groupby(["run", "split_seed", "seed"])["value"].idxmax()
        sentences.append(f"{shared}: {per_kind(claimed.loc[largest])}")
    return Findings(
        summary="Share of the 15 nearest neighbours of the same function, term 1 or term 2, above "
                "that of shuffled labels, in the layer and of the label where it is largest: "
                f"{'; '.join(sentences)}.",
        tables={"neighbours": pd.concat(tables.values(), ignore_index=True)},
        figures={name: planes_figure(measured[inputs], LOGIC.values(), title=READINGS[inputs])
                 for name, inputs in (("figA2", "fixed_context"), ("figA2_query", "fixed_query"))},
        evidence={claim.id: plane_evidence(claim, measured[reading(claim)])
                  for claim in work.claims},
        notes=(NOTE,
               "With one query the codes of layer 0 are the same for all instances, but in softmax "
               "attention; such a layer has no plane.",
               "In brackets below the panels: the same of shuffled labels; functions and targets "
               "(in five classes of equal size) are shuffled among instances, terms among "
               "functions.",
               PICTURES),
        raw={"points": points_table([each for of_inputs in measured.values()
                                     for each in of_inputs])})


def of_sraven(work: Work, name: str) -> Findings:
    """Return how neighbours agree on rule and target, in the planes of Fig. 5A, B, A6 or A7."""
    shows, models = {
        "fig5ab": (OF_5AB, "SRAVEN"),
        "figA6": (OF_A6, "SRAVEN" + " with 40 M instances" * (work.preset == "paper")),
        "figA7": (OF_A7, "a softmax transformer of 16 layers on SRAVEN")}[name]
    measured = planes(work, work.runs_of(shows[work.preset]), SRAVEN)
    if not measured:
        return nothing(models)
    table = agreement_table(measured, last_alone=name == "fig5ab")
    tables = {"neighbours": table}
    notes: tuple[str, ...] = (NO_PLANE, IN_BRACKETS, PICTURES)
    if name == "fig5ab":
        labels = "; ".join(f"{label} {per_kind(where(table, label=label), runs=label == 'rule')}"
                           for label in ("rule", "target"))
        summary, notes = f"{ABOVE.format('with the same label', 'labels')}: {labels}.", notes[1:]
    elif name == "figA6":
        change = pd.DataFrame([each.early_less_late(1) for each in measured
                               if len(each.layers) > 1])
        tables["first_less_last"] = change
        summary = ("Agreement of the 15 nearest neighbours on the target minus that on the rule, "
                   "each above shuffled labels, in the first layer whose codes vary less the same "
                   f"in the last: {per_kind(change)}.")
    else:
        change = pd.DataFrame([each.early_less_late(ENDS) for each in measured])
        tables["early_less_last"] = change
        notes = (*notes[:2], "The pictures are of the first run, the numbers of all.")
        last = where(table[table["layer"] == table["layer"].max()], label="rule")
        summary = (f"{ABOVE.format('of the same rule', 'rules')}: {per_kind(last)}. Agreement on "
                   f"the target minus that on the rule, first {ENDS} layers less last {ENDS}: "
                   f"{per_kind(change, runs=False)}.")
    runs = [each.run for each in measured]
    return Findings(
        summary, tables,
        figures={name: planes_figure(
            measured, [SRAVEN["rule"], SRAVEN["target"]], layers_across=True, title=titled(runs))
            if name == "figA7" else planes_figure(
                measured, SRAVEN.values(), last_alone=name == "fig5ab", title=titled(runs))},
        evidence={claim.id: plane_evidence(claim, measured) for claim in work.claims},
        notes=(*notes, *caveat(runs)),
        raw={"points": points_table(measured, last_alone=name == "fig5ab")})


REPRODUCTIONS = (
    Reproduction(
        "fig2d",
        "t-SNE of the codes of the query on held-out functions, by target, function and term 1",
        SHOWS, fig2d),
    Reproduction(
        "figA2",
        "t-SNE of the codes of the query on held-out functions, all layers, by target, function "
        "and terms",
        OF_A2, figA2),
    Reproduction(
        "fig5ab",
        "t-SNE of the last layer's codes on held-out combinations, by target (A) and by rule (B)",
        OF_5AB, lambda work: of_sraven(work, "fig5ab")),
    Reproduction(
        "figA6",
        "t-SNE of the codes on held-out combinations, all layers, by target (A) and by rule (B)",
        OF_A6, lambda work: of_sraven(work, "figA6")),
    Reproduction(
        "figA7",
        "t-SNE of the codes of a softmax transformer of 16 layers, by rule (A) and by target (B)",
        OF_A7, lambda work: of_sraven(work, "figA7")))
