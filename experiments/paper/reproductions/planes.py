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
from dataclasses import dataclass, field, replace
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
    as_evidence,
    by_preset,
    controls_of,
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
from latentcode.experiments.paper.wording import caveat, nothing, per_kind, titled
from latentcode.figures.panels import ScatterCell, scatter_figure
from latentcode.figures.style import Figure
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import mean_and_interval, no_null, shuffled_classes
from latentcode.probes.knn_purity import (
    AGREEMENT_SHUFFLES,
    MOST_NEIGHBORS,
    agreeing_neighbors,
    nearest,
)
from latentcode.probes.projection import ProjectionResult, project
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
    """What neighbours agree on.

    name    in words
    column  of the coordinates of a projection
    among   what labels are shuffled among: where a label names the combination itself, shuffling
            combinations would only rename the clusters
    classes  how many classes of equal size a measurement is put in
    """

    name: str
    column: str
    among: Literal["combinations", "instances"] = "combinations"
    classes: int | None = None

    def of(self, points: pd.DataFrame) -> np.ndarray:
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

    inputs  of fuzzy logic: what all instances share, `fixed_context` or `fixed_query`
    excess  layer -> label -> per point, the share of its neighbours that have its label, less what
            shuffled labels give, float64 [N]
    shares  the same before shuffled labels are taken away
    reach   layer -> label -> how far places tell the label, float64 [N]
    """

    member: str
    run: Run
    points: pd.DataFrame
    clusters: np.ndarray
    excess: Mapping[int, Mapping[str, np.ndarray]]
    shares: Mapping[int, Mapping[str, np.ndarray]]
    inputs: str = ""
    reach: Mapping[int, Mapping[str, np.ndarray]] = field(default_factory=dict)

    @property
    def layers(self) -> list[int]:
        """The layers that have a plane, in rising order."""
        return sorted(self.excess)

    def row(self, values: np.ndarray) -> dict[str, Any]:
        """Return the columns of evidence: the mean of values [N], and its interval."""
        value, low, high, _ = mean_and_interval(values, self.clusters, N_BOOTSTRAP, 0)
        return about(self.member, self.run) | {
            "value": float(value), "low": float(low), "high": float(high)}


def projected(run: Run, *, inputs: str, n: int, device: str) -> ProjectionResult:
    """Return the t-SNE planes of held-out codes, a point per problem.

    inputs  of fuzzy logic; empty: as the task is probed, with one context
    """
    config = make_task(run.config.task).probe_config
    labels = ("term_1", "term_2") if config.name == "logic" else ("rule", "target")
    problems = replace(config, inputs=inputs) if inputs else config
    return project(run, problems, labels=labels, n=n, device=device)


def planes(
    work: Work, runs: Iterable[tuple[str, Run]], labels: Mapping[str, Label], inputs: str = ""
) -> list[Planes]:
    """Return the t-SNE planes of held-out codes of some runs, and how their neighbours agree.

    inputs  of fuzzy logic; default: as the task is probed, with one context
    """
    return [_planes_of_run(member, run, labels, work.measured(
        run, projected, ProjectionResult, inputs=inputs, n=N[work.preset]).coordinates, inputs)
        for member, run in runs]


def _planes_of_run(
    member: str, run: Run, labels: Mapping[str, Label], points: pd.DataFrame, inputs: str
) -> Planes:
    layers = {layer: where(points, layer=layer) for layer in points["layer"].unique().tolist()}
    clusters = pd.factorize(next(iter(layers.values()))["combination"].astype(str))[0]
    shares: dict[int, dict[str, np.ndarray]] = {}
    excess: dict[int, dict[str, np.ndarray]] = {}
    reached: dict[int, dict[str, np.ndarray]] = {}
    for layer, plane in layers.items():
        shares[layer], excess[layer], reached[layer] = {}, {}, {}
        for name, label in labels.items():
            agreeing, shuffled = agreement(plane, label, clusters)
            shares[layer][name], excess[layer][name] = agreeing, agreeing - shuffled
            reached[layer][name] = reach(*votes(*_dealt(plane, label, clusters)))
    return Planes(member, run, points, clusters, excess, shares, inputs, reached)


def agreement(
    plane: pd.DataFrame, label: Label, clusters: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return per point the share of its neighbours with its label, and with its shuffled label."""
    points, kind, groups, rng = _dealt(plane, label, clusters)
    own, shuffled = agreeing_neighbors(points, kind, groups, "euclidean", rng)
    check(len(shuffled) > 0, no_null(label.name), ProbeError)
    return own.mean(axis=1), shuffled.mean(axis=(0, 2))


def _dealt(
    plane: pd.DataFrame, label: Label, clusters: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    """Return places, classes, and what classes are shuffled among, by which generator."""
    groups = clusters if label.among == "combinations" else np.arange(len(plane))
    return (plane[["projection_x", "projection_y"]].to_numpy(), label.of(plane), groups,
            np.random.default_rng(0))


def agreement_table(measured: Sequence[Planes]) -> pd.DataFrame:
    """Return a row per run, layer and label: `agreement`, `shuffled`, and their difference; and
    `reach`, with its interval."""
    rows = []
    for each in measured:
        for layer in each.layers:
            for label, excess in each.excess[layer].items():
                share = float(each.shares[layer][label].mean())
                reached = each.row(each.reach[layer][label])
                rows.append(each.row(excess) | _inputs(each) | {
                    "layer": layer, "label": label, "agreement": share,
                    "shuffled": share - float(excess.mean()), "n": len(excess), **{
                        name: reached[key] for name, key in (
                            ("reach", "value"), ("reach_low", "low"), ("reach_high", "high"))}})
    return pd.DataFrame(rows)


def last_planes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of an agreement table that are of each run's last layer."""
    return table[table["layer"] == table.groupby("run")["layer"].transform("max")]


def _inputs(each: Planes) -> dict[str, str]:
    return {"inputs": each.inputs} if each.inputs else {}


def points_table(measured: Sequence[Planes], *, last_alone: bool = False) -> pd.DataFrame:
    """Return the points behind a picture, with few digits: of the first run of each kind."""
    parts = []
    for each in first_of_each(measured):
        points = each.points[each.points["layer"] == each.layers[-1]] if last_alone else each.points
        # Terms follow from the combination; of rules the last token's cannot be told from it.
        label = "rule" if "rule" in points else "combination"
        parts.append(pd.DataFrame({
            **_inputs(each), "kind": about(each.member, each.run)["kind"], "layer": points["layer"],
            "x": points["projection_x"].round(1), "y": points["projection_y"].round(1),
            "target": points["target"].round(2), label: points[label]}))
    return pd.concat(parts, ignore_index=True)


def target_over_rule(each: Planes, layers: Sequence[int]) -> np.ndarray:
    """Return per point the agreement on the target minus that on the rule, mean over layers."""
    return np.asarray(np.mean([each.excess[layer]["target"] - each.excess[layer]["rule"]
                               for layer in layers], axis=0))


def first_of_each(measured: Sequence[Planes]) -> list[Planes]:
    """Return the first run of each kind, of which the pictures are; of each inputs, in turn."""
    chosen: dict[tuple[str, str], Planes] = {}
    for each in measured:
        chosen.setdefault((each.inputs, about(each.member, each.run)["kind"]), each)
    return [chosen[inputs, kind] for inputs in dict.fromkeys(each.inputs for each in measured)
            for kind in KIND_TITLES if (inputs, kind) in chosen]


def planes_figure(
    measured: Sequence[Planes], labels: Sequence[Label], *, last_alone: bool,
    layers_across: bool = False, title: str = "", inputs: Mapping[str, str] | None = None,
) -> Figure:
    """Return a panel per label and layer (down) and kind (across), of the first run of each.

    last_alone     the last layer alone
    layers_across  layers across, for a single kind
    inputs         of several inputs, side by side: what each is called above its panels

    Below each panel stands the share of neighbours that agree, in brackets that of shuffled labels.
    """
    shown = first_of_each(measured)
    layers = sorted({layer for each in shown for layer in each.layers})
    cells = []
    for label, layer, each in product(labels, layers[-1:] if last_alone else layers, shown):
        if layer not in each.excess:
            continue
        plane = where(each.points, layer=layer)
        share = each.shares[layer][label.name].mean()
        shuffled = share - each.excess[layer][label.name].mean()
        kind, number = KIND_TITLES[about(each.member, each.run)["kind"]], f"layer {layer}"
        kind += f"\n{inputs[each.inputs]}" if inputs else ""
        down = label.name if last_alone or layers_across else f"{label.name}\n{number}"
        cells.append(ScatterCell(
            down, number if layers_across else kind,
            plane[["projection_x", "projection_y"]].to_numpy(),
            plane[label.column].rename(label.name), f"neighbours {share:.2f} ({shuffled:.2f})"))
    figure = scatter_figure(cells, continuous=["target"])
    if title:
        figure.suptitle(title, fontsize=9.5)
    return figure


def votes(
    points: np.ndarray, kind: np.ndarray, groups: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return per point what it adds to the balanced accuracy of its neighbours' vote.

    points  [N, 2]
    kind    int [N], the class of each point
    groups  int [N], the combination of each point

    A class that shares the first place with others counts in part. Both are float64 [N], whose
    means are the balanced accuracy and that of labels that are shuffled.
    """
    neighbours = nearest(points, min(MOST_NEIGHBORS, (len(points) - 1) // 2))
    shuffles = shuffled_classes(kind, groups, rng, AGREEMENT_SHUFFLES)
    return (_voted(neighbours, kind),
            np.mean([_voted(neighbours, of_class) for of_class in shuffles], axis=0))


def _voted(neighbours: np.ndarray, kind: np.ndarray) -> np.ndarray:
    sizes = np.bincount(kind)
    counts = np.zeros((len(kind), len(sizes)), dtype=np.int64)
    np.add.at(counts, (np.arange(len(kind))[:, None], kind[neighbours]), 1)
    first = counts == counts.max(axis=1, keepdims=True)
    right = first[np.arange(len(kind)), kind] / first.sum(axis=1)
    # Every class weighs the same, however common it is.
    return np.asarray(right * len(kind) / (np.count_nonzero(sizes) * sizes[kind]))


def reach(own: np.ndarray, shuffled: np.ndarray) -> np.ndarray:
    """Return (a - a0) / (1 - a0) as a mean over points, float64 [N], of what `votes` returns."""
    return np.asarray((own - shuffled) / (1.0 - shuffled.mean()))


def fig2d(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on function, term and target."""
    tables, figures, raw, sentences = {}, {}, {}, []
    evidence: dict[str, pd.DataFrame] = {}
    for setting, runs in runs_by_setting(work):
        measured = {inputs: planes(work, runs, LOGIC, inputs) for inputs in READINGS}
        every = [each for of_runs in measured.values() for each in of_runs]
        suffix = SUFFIXES.get(setting, "")
        last = last_planes(agreement_table(every))
        tables[f"neighbours{suffix}"] = last
        figures[f"fig2d{suffix}"] = planes_figure(
            every, [LOGIC["target"], LOGIC["function"], LOGIC["term 1"]], last_alone=True,
            inputs=READINGS, title=TITLES[setting] if suffix else "")
        raw[f"points{suffix}"] = points_table(every, last_alone=True)
        for inputs, shared in READINGS.items():
            said = f"{TITLES[setting]}, {shared}" if suffix else shared
            own = where(last, inputs=inputs)
            sentences.append(f"{said[0].upper()}{said[1:]}: " + "; ".join(
                f"{label} {per_kind(where(own, label=label), runs=label == 'target')}"
                for label in LOGIC) + ".")
        evidence |= {claim.id: above_shuffled(claim, of_last(claim.id, measured[reading(claim)]))
                     for claim in work.claims if claim.setting == setting}
    if not tables:
        return nothing("fuzzy logic")
    return Findings(
        summary=f"{ABOVE.format('with the same label', 'labels')}. {' '.join(sentences)}",
        tables=tables,
        figures=figures,
        evidence=evidence,
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
    tables = {inputs: agreement_table(of_runs) for inputs, of_runs in measured.items()}
    said = "; ".join(f"{shared}: {per_kind(_most(tables[inputs]))}"
                     for inputs, shared in READINGS.items())
    evidence = {claim.id: above_shuffled(claim, [
        each.row(each.excess[layer][label]) | {"member": f"{each.member}: layer {layer}, {label}"}
        for each in measured[reading(claim)] for layer in each.layers for label in CLAIMED])
        for claim in work.claims}
    return Findings(
        summary="Share of the 15 nearest neighbours of the same function, term 1 or term 2, above "
                "that of shuffled labels, in the layer and of the label where it is largest: "
                f"{said}.",
        tables={"neighbours": pd.concat(tables.values(), ignore_index=True)},
        figures={name: planes_figure(measured[inputs], list(LOGIC.values()), last_alone=False,
                                     title=READINGS[inputs])
                 for name, inputs in (("figA2", "fixed_context"), ("figA2_query", "fixed_query"))},
        evidence=evidence,
        notes=(NOTE,
               "With one query the codes of layer 0 are the same for all instances, but in softmax "
               "attention; such a layer has no plane.",
               "In brackets below the panels: the same of shuffled labels; functions and targets "
               "(in five classes of equal size) are shuffled among instances, terms among "
               "functions.",
               PICTURES),
        raw={"points": points_table([each for of_runs in measured.values() for each in of_runs])})


def _most(table: pd.DataFrame) -> pd.DataFrame:
    """Return the largest excess of each run, of the labels that the claim names."""
    claimed = table[table["label"].isin(CLAIMED)]
    return claimed.loc[claimed.groupby(["run", "split_seed", "seed"])["value"].idxmax()]


def fig5ab(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on rule and target."""
    measured = planes(work, work.runs_of(OF_5AB[work.preset]), SRAVEN)
    if not measured:
        return nothing("SRAVEN")
    table = last_planes(agreement_table(measured))
    said = "; ".join(f"{label} {per_kind(where(table, label=label), runs=label == 'rule')}"
                     for label in ("rule", "target"))
    return _of_sraven(
        "fig5ab", work, measured, SRAVEN.values(), last_alone=True,
        summary=f"{ABOVE.format('with the same label', 'labels')}: {said}.",
        tables={"neighbours": table}, notes=(IN_BRACKETS, PICTURES))


def figA6(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on rule and target."""
    measured = planes(work, work.runs_of(OF_A6[work.preset]), SRAVEN)
    if not measured:
        return nothing("SRAVEN with 40 M instances" if work.preset == "paper" else "SRAVEN")
    change = early_less_late([each for each in measured if len(each.layers) > 1], 1)
    return _of_sraven(
        "figA6", work, measured, SRAVEN.values(), change=change,
        summary="Agreement of the 15 nearest neighbours on the target minus that on the rule, each "
                "above shuffled labels, in the first layer whose codes vary less the same in the "
                f"last: {per_kind(pd.DataFrame(change))}.",
        tables={"neighbours": agreement_table(measured), "first_less_last": pd.DataFrame(change)},
        notes=(NO_PLANE, IN_BRACKETS, PICTURES))


def figA7(work: Work) -> Findings:
    """Return how neighbours in the plane of every layer agree on rule and target."""
    measured = planes(work, work.runs_of(OF_A7[work.preset]), SRAVEN)
    if not measured:
        return nothing("a softmax transformer of 16 layers on SRAVEN")
    change, table = early_less_late(measured, ENDS), agreement_table(measured)
    last = where(table[table["layer"] == table["layer"].max()], label="rule")
    return _of_sraven(
        "figA7", work, measured, [SRAVEN["rule"], SRAVEN["target"]], change=change,
        layers_across=True,
        summary=f"{ABOVE.format('of the same rule', 'rules')}: {per_kind(last)}. Agreement on the "
                f"target minus that on the rule, first {ENDS} layers less last {ENDS}: "
                f"{per_kind(pd.DataFrame(change), runs=False)}.",
        tables={"neighbours": table, "early_less_last": pd.DataFrame(change)},
        notes=(NO_PLANE, IN_BRACKETS, "The pictures are of the first run, the numbers of all."))


def _of_sraven(
    name: str, work: Work, measured: Sequence[Planes], labels: Iterable[Label], *, summary: str,
    tables: Mapping[str, pd.DataFrame], notes: tuple[str, ...],
    change: Sequence[Mapping[str, Any]] = (), last_alone: bool = False,
    layers_across: bool = False,
) -> Findings:
    """Return the findings of a figure of SRAVEN's planes.

    change         the rows of a claim about early layers; those of others are `of_last`
    layers_across  layers across, of the first run alone
    """
    runs = [each.run for each in measured]
    return Findings(
        summary=summary, tables=tables,
        figures={name: planes_figure(
            measured[:1] if layers_across else measured, list(labels), last_alone=last_alone,
            layers_across=layers_across, title=titled(runs))},
        evidence={claim.id: above_shuffled(
            claim, change if "early" in claim.id else of_last(claim.id, measured))
            for claim in work.claims},
        notes=(*notes, *caveat(runs)),
        raw={"points": points_table(measured, last_alone=last_alone)})


def above_shuffled(claim: Claim, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return evidence of a claim, whose one control are shuffled labels."""
    return as_evidence(rows, control=controls_of(claim)[0])


def of_last(claim: str, measured: Sequence[Planes]) -> list[dict[str, Any]]:
    """Return a row per run of what a claim about the last layer's plane says: how far places tell
    the function or rule, how often neighbours agree on it, or by how much more than on the target.
    """
    def values(each: Planes) -> np.ndarray:
        last = each.layers[-1]
        excess, label = each.excess[last], "rule" if "rule" in each.excess[last] else "function"
        if "-reach-" in claim:
            return each.reach[last][label]
        if claim.endswith("target-explains-less"):
            return np.asarray(excess[label] - excess["target"])
        return excess["term 1" if claim.endswith("by-first-term") else label]

    return [each.row(values(each)) for each in measured]


def early_less_late(measured: Iterable[Planes], n: int) -> list[dict[str, Any]]:
    """Return a row per run: agreement on the target minus that on the rule in the first n layers,
    less the same in the last n."""
    return [each.row(target_over_rule(each, each.layers[:n])
                     - target_over_rule(each, each.layers[-n:])) for each in measured]


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
        OF_5AB, fig5ab),
    Reproduction(
        "figA6",
        "t-SNE of the codes on held-out combinations, all layers, by target (A) and by rule (B)",
        OF_A6, figA6),
    Reproduction(
        "figA7",
        "t-SNE of the codes of a softmax transformer of 16 layers, by rule (A) and by target (B)",
        OF_A7, figA7))
