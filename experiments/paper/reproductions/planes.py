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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentcode.errors import ProbeError, check
from latentcode.experiments.paper.claims import Claim, Setting
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    RUN,
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
from latentcode.probes.common.results import blocks, where
from latentcode.probes.common.statistics import mean_and_interval, no_null, shuffled_classes
from latentcode.probes.knn_purity import nearest
from latentcode.probes.projection import AGREEMENT_SHUFFLES, MOST_NEIGHBORS, project
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
ENDS = {"figA6": 1, "figA7": 4}
"""Layers of a figure that count as early ones, and as the last ones."""
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
        column: Of the coordinates of a projection.
        among: What labels are shuffled among: where a label names the combination itself,
            shuffling combinations would only rename the clusters.
        classes: How many classes of equal size a measurement is put in.
    """

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


LOGIC: Mapping[str, Label] = {
    "target": Label("target", "instances", classes=5),
    "function": Label("combination", "instances"),
    "term 1": Label("term_1"), "term 2": Label("term_2")}
SRAVEN: Mapping[str, Label] = {"target": Label("target"), "rule": Label("rule")}


def projected(run: Run, *, inputs: str, n: int, device: str) -> pd.DataFrame:
    """Return the t-SNE planes of held-out codes, a row per layer and problem."""
    config = make_task(run.config.task).probe_config
    labels = ("term_1", "term_2") if config.name == "logic" else ("rule", "target")
    problems = replace(config, inputs=inputs) if inputs else config
    return project(run, problems, labels=labels, n=n, device=device).coordinates


def planes(
    work: Work, runs: Iterable[tuple[str, Run]], labels: Mapping[str, Label], inputs: str = ""
) -> pd.DataFrame:
    """Return planes of held-out codes, a row per run, layer whose codes vary, and point.

    Beside the coordinates, all labels and the names of the run: `cluster`, the number of the
    point's combination, and `LABEL share`, `LABEL excess` and `LABEL reach` of `neighbours`.

    Args:
        work: With the preset and what was measured before.
        runs: (member, run).
        labels: What neighbours may share.
        inputs: Of fuzzy logic, what all instances share: `fixed_context` or `fixed_query`.
    """
    parts = []
    for member, run in runs:
        named = about(member, run) | ({"inputs": inputs} if inputs else {})
        points = work.table(run, projected, inputs=inputs, n=N[work.preset])
        for _, plane in points.groupby("layer"):
            clusters = pd.factorize(plane["combination"].astype(str))[0]
            shared = {f"{name} {measure}": values.to_numpy() for name, label in labels.items()
                      for measure, values in neighbours(plane, label, clusters).items()}
            parts.append(plane.assign(**named, cluster=clusters, **shared))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


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
    check(len(shuffles) > 0, no_null(label.column), ProbeError)

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


def interval(values: Any, clusters: Any) -> dict[str, float]:
    """Return the mean of values [N] of points, and its interval over combinations."""
    value, low, high, _ = mean_and_interval(
        np.asarray(values), np.asarray(clusters), N_BOOTSTRAP, 0)
    return {"value": float(value), "low": float(low), "high": float(high)}


def by_run(points: pd.DataFrame, *columns: str) -> Iterable[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the points of each run, of each of its inputs, and of further columns."""
    return blocks(points, [*RUN, *points.columns.intersection(["inputs"]), *columns])


def last_layer(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points of the last layer of each run."""
    return points[points["layer"] == points.groupby(RUN)["layer"].transform("max")]


def agreement_table(points: pd.DataFrame, labels: Iterable[str]) -> pd.DataFrame:
    """Return a row per run, layer and label: `agreement`, `shuffled`, and their difference; and
    `reach`, with its interval."""
    rows = []
    for named, plane in by_run(points, "layer"):
        layer = named.pop("layer")
        for label in labels:
            share, excess = plane[f"{label} share"].mean(), plane[f"{label} excess"]
            reach = interval(plane[f"{label} reach"], plane["cluster"])
            rows.append(named | interval(excess, plane["cluster"]) | {
                "layer": layer, "label": label, "agreement": share,
                "shuffled": share - excess.mean(), "n": len(plane), "reach": reach["value"],
                "reach_low": reach["low"], "reach_high": reach["high"]})
    return pd.DataFrame(rows)


def early_less_late(planes: pd.DataFrame, n: int) -> np.ndarray:
    """Return per point of a run the excess of the target less that of the rule, early less late.

    It is a mean over the first n layers, and over the last n.
    """
    lead = planes["target excess"] - planes["rule excess"]
    by_layer = [layer.to_numpy() for _, layer in lead.groupby(planes["layer"])]
    return np.asarray(np.mean(by_layer[:n], axis=0) - np.mean(by_layer[-n:], axis=0))


def changes(points: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return the mean of `early_less_late` of each run; of one layer alone there is none."""
    rows = []
    for named, planes in by_run(points):
        if n > 1 or planes["layer"].nunique() > 1:
            values = early_less_late(planes, n)
            rows.append(named | interval(values, planes["cluster"].iloc[:len(values)]))
    return pd.DataFrame(rows, columns=[*RUN, "value", "low", "high"])


def plane_evidence(claim: Claim, points: pd.DataFrame) -> pd.DataFrame:
    """Return a row per run of what a claim says of planes, each with its interval.

    Of the last layer: how far places tell the function or rule, how often neighbours agree on it,
    or by how much more than on the target. Of Fig. A2: every layer and claimed label. Of early
    layers: see `early_less_late`.
    """
    control, = controls_of(claim)
    if "early" in claim.id:
        return evidence(changes(points, ENDS[claim.result]).to_dict("records"), control=control)
    if claim.result == "figA2":
        table = agreement_table(points, CLAIMED).drop(columns="n")
        table["member"] += ": layer " + table["layer"].astype(str) + ", " + table["label"]
        return evidence(table.to_dict("records"), control=control)
    label = "rule" if "rule excess" in points else "function"
    label = "term 1" if claim.id.endswith("by-first-term") else label
    measure = "reach" if "-reach-" in claim.id else "excess"
    rows = []
    for named, plane in by_run(last_layer(points)):
        values = plane[f"{label} {measure}"]
        if claim.id.endswith("target-explains-less"):
            values = values - plane["target excess"]
        rows.append(named | interval(values, plane["cluster"]))
    return evidence(rows, control=control)


def pictured(points: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the points of the first run of each inputs and kind, which pictures show."""
    first: dict[tuple[str, str], pd.DataFrame] = {}
    for named, planes in by_run(points):
        first.setdefault((named.get("inputs", ""), named["kind"]), planes)
    return list(first.values())


def points_table(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points behind a picture, with few digits."""
    shown = pd.concat(pictured(points), ignore_index=True)
    # Terms follow from the combination; of rules the last token's cannot be told from it.
    label = "rule" if "rule" in shown else "combination"
    rounded = {"x": shown["projection_x"].round(1), "y": shown["projection_y"].round(1),
               "target": shown["target"].round(2), label: shown[label]}
    return shown[[*shown.columns.intersection(["inputs"]), "kind", "layer"]].assign(**rounded)


def planes_figure(
    points: pd.DataFrame, labels: Mapping[str, Label], *,
    layers: Literal["one", "down", "across"] = "down", title: str = "",
) -> Figure:
    """Return a panel per label and layer (down) and kind (across), of the first run of each.

    Below each panel stands the share of neighbours that agree, in brackets that of shuffled labels.

    Args:
        points: Of all runs.
        labels: The labels that colour the points.
        layers: Where the layers stand: the only one is not named; across: of a single kind.
        title: Of the figure.
    """
    shown = pictured(points)
    several_inputs = "inputs" in points and points["inputs"].nunique() > 1
    cells = []
    for (name, label), layer, run in product(labels.items(), sorted(points["layer"].unique()),
                                             shown):
        plane = where(run, layer=layer)
        if plane.empty:
            continue
        kind = KIND_TITLES[plane["kind"].iloc[0]]
        kind += f"\n{READINGS[plane['inputs'].iloc[0]]}" if several_inputs else ""
        share, excess = plane[f"{name} share"].mean(), plane[f"{name} excess"].mean()
        cells.append(ScatterCell(
            f"{name}\nlayer {layer}" if layers == "down" else name,
            f"layer {layer}" if layers == "across" else kind,
            plane[["projection_x", "projection_y"]].to_numpy(), plane[label.column].rename(name),
            f"neighbours {share:.2f} ({share - excess:.2f})"))
    figure = scatter_figure(cells, continuous=["target"])
    if title:
        figure.suptitle(title, fontsize=9.5)
    return figure


def fig2d(work: Work) -> Findings:
    """Return how neighbours in the plane of the last layer agree on function, term and target."""
    tables, figures, raw, sentences = {}, {}, {}, []
    judged: dict[str, pd.DataFrame] = {}
    drawn = {name: LOGIC[name] for name in ("target", "function", "term 1")}
    for setting, runs in runs_by_setting(work):
        points = last_layer(pd.concat(
            [planes(work, runs, LOGIC, inputs) for inputs in READINGS], ignore_index=True))
        suffix = SUFFIXES.get(setting, "")
        table = tables[f"neighbours{suffix}"] = agreement_table(points, LOGIC)
        figures[f"fig2d{suffix}"] = planes_figure(
            points, drawn, layers="one", title=TITLES[setting] if suffix else "")
        raw[f"points{suffix}"] = points_table(points)
        for inputs, shared in READINGS.items():
            place = f"{TITLES[setting]}, {shared}" if suffix else shared
            labels = "; ".join(
                f"{label} {per_kind(where(table, inputs=inputs, label=label), runs=first)}"
                for label, first in zip(LOGIC, (True, False, False, False), strict=True))
            sentences.append(f"{place[0].upper()}{place[1:]}: {labels}.")
        judged |= {claim.id: plane_evidence(claim, where(points, inputs=reading(claim)))
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
    points = {inputs: planes(work, runs, LOGIC, inputs) for inputs in READINGS}
    every = pd.concat(points.values(), ignore_index=True)
    table = agreement_table(every, LOGIC)
    sentences = []
    for inputs, shared in READINGS.items():
        claimed = table[(table["inputs"] == inputs) & table["label"].isin(CLAIMED)]
        largest = claimed.groupby(["run", "split_seed", "seed"])["value"].idxmax()
        sentences.append(f"{shared}: {per_kind(claimed.loc[largest])}")
    return Findings(
        summary="Share of the 15 nearest neighbours of the same function, term 1 or term 2, above "
                "that of shuffled labels, in the layer and of the label where it is largest: "
                f"{'; '.join(sentences)}.",
        tables={"neighbours": table},
        figures={name: planes_figure(points[inputs], LOGIC, title=READINGS[inputs])
                 for name, inputs in (("figA2", "fixed_context"), ("figA2_query", "fixed_query"))},
        evidence={claim.id: plane_evidence(claim, points[reading(claim)])
                  for claim in work.claims},
        notes=(NOTE,
               "With one query the codes of layer 0 are the same for all instances, but in softmax "
               "attention; such a layer has no plane.",
               "In brackets below the panels: the same of shuffled labels; functions and targets "
               "(in five classes of equal size) are shuffled among instances, terms among "
               "functions.",
               PICTURES),
        raw={"points": points_table(every)})


def of_sraven(name: str, shows: Mapping[str, tuple[Setting, ...]], work: Work) -> Findings:
    """Return how neighbours agree on rule and target, in the planes of Fig. 5A, B, A6 or A7."""
    runs = list(work.runs_of(shows[work.preset]))
    if not runs:
        large = " with 40 M instances" * (work.preset == "paper" and name == "figA6")
        return nothing("a softmax transformer of 16 layers on SRAVEN" if name == "figA7"
                       else f"SRAVEN{large}")
    points = planes(work, runs, SRAVEN)
    table = agreement_table(last_layer(points) if name == "fig5ab" else points, SRAVEN)
    tables, title = {"neighbours": table}, titled(run for _, run in runs)
    if name == "fig5ab":
        rule, target = (per_kind(where(table, label=label), runs=label == "rule")
                        for label in ("rule", "target"))
        points = last_layer(points)
        figure = planes_figure(points, SRAVEN, layers="one", title=title)
        summary = f"{ABOVE.format('with the same label', 'labels')}: rule {rule}; target {target}."
        notes: tuple[str, ...] = (IN_BRACKETS, PICTURES)
    elif name == "figA6":
        tables["first_less_last"] = changes(points, ENDS[name])
        figure = planes_figure(points, SRAVEN, title=title)
        summary = ("Agreement of the 15 nearest neighbours on the target minus that on the rule, "
                   "each above shuffled labels, in the first layer whose codes vary less the same "
                   f"in the last: {per_kind(tables['first_less_last'])}.")
        notes = (NO_PLANE, IN_BRACKETS, PICTURES)
    else:
        n, change = ENDS[name], changes(points, ENDS[name])
        tables["early_less_last"] = change
        figure = planes_figure(points, {label: SRAVEN[label] for label in ("rule", "target")},
                               layers="across", title=title)
        last = where(table, layer=table["layer"].max(), label="rule")
        summary = (f"{ABOVE.format('of the same rule', 'rules')}: {per_kind(last)}. Agreement on "
                   f"the target minus that on the rule, first {n} layers less last {n}: "
                   f"{per_kind(change, runs=False)}.")
        notes = (NO_PLANE, IN_BRACKETS, "The pictures are of the first run, the numbers of all.")
    return Findings(
        summary, tables, figures={name: figure},
        evidence={claim.id: plane_evidence(claim, points) for claim in work.claims},
        notes=(*notes, *caveat(run for _, run in runs)), raw={"points": points_table(points)})


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
    *(Reproduction(name, title, shows, partial(of_sraven, name, shows)) for name, shows, title in (
        ("fig5ab", OF_5AB, "t-SNE of the last layer's codes on held-out combinations, by target "
         "(A) and by rule (B)"),
        ("figA6", OF_A6, "t-SNE of the codes on held-out combinations, all layers, by target (A) "
         "and by rule (B)"),
        ("figA7", OF_A7, "t-SNE of the codes of a softmax transformer of 16 layers, by rule (A) "
         "and by target (B)"))))
