"""Do the codes of one label lie together in the plane? (Fig. 2D, 5A, 5B, A2, A6 and A7)

A picture of clusters is judged by the share of a point's 15 nearest neighbours that have its label,
above what shuffled labels give. Every number is a mean over points, so that its interval comes
from resampling the combinations that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd

from latentcode.experiments.paper.measuring.clumps import reach, votes
from latentcode.experiments.paper.reproduction import KIND_TITLES, Work, about
from latentcode.figures.style import Figure
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.common.results import where
from latentcode.probes.knn_purity.neighbours import agreeing_neighbors
from latentcode.probes.projection import ProjectionResult, project
from latentcode.probes.projection.figure import ScatterCell, scatter_figure
from latentcode.runs import Run
from latentcode.tasks import make_task

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
    reach   layer -> label -> how far places tell the label (`clumps.reach`), float64 [N]
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


def planes(
    work: Work, runs: Iterable[tuple[str, Run]], labels: Mapping[str, Label], inputs: str = ""
) -> list[Planes]:
    """Return the t-SNE planes of held-out codes of some runs, and how their neighbours agree.

    inputs  of fuzzy logic; default: as the task is probed, with one context
    """
    asked = ("term_1", "term_2") if labels is LOGIC else ("rule", "target")
    found = []
    for member, run in runs:
        own = make_task(run.config.task).probe_config
        other = {} if inputs in ("", getattr(own, "inputs", "")) else {
            "problems": replace(own, inputs=inputs)}
        projected = work.measured(run, project, ProjectionResult, labels=asked,
                                  n=N[work.preset], **other)
        found.append(replace(_of_run(member, run, labels, projected), inputs=inputs))
    return found


def _of_run(
    member: str, run: Run, labels: Mapping[str, Label], found: ProjectionResult
) -> Planes:
    points = found.coordinates
    layers = {layer: where(points, layer=layer) for layer in points["layer"].unique().tolist()}
    clusters = pd.factorize(next(iter(layers.values()))["combination"].astype(str))[0]
    shares: dict[int, dict[str, np.ndarray]] = {}
    excess: dict[int, dict[str, np.ndarray]] = {}
    reached: dict[int, dict[str, np.ndarray]] = {}
    for layer, plane in layers.items():
        shares[layer], excess[layer], reached[layer] = {}, {}, {}
        for name, label in labels.items():
            own, shuffled = agreement(plane, label, clusters)
            shares[layer][name], excess[layer][name] = own, own - shuffled
            reached[layer][name] = reach(*votes(*_dealt(plane, label, clusters)))
    return Planes(member, run, points, clusters, excess, shares, reach=reached)


def agreement(
    plane: pd.DataFrame, label: Label, clusters: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return per point the share of its neighbours with its label, and with its shuffled label."""
    points, kind, groups, rng = _dealt(plane, label, clusters)
    own, shuffled = agreeing_neighbors(points, kind, groups, "euclidean", rng)
    return own.mean(axis=1), shuffled.mean(axis=(0, 2))


def _dealt(
    plane: pd.DataFrame, label: Label, clusters: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    """Return places, classes, and what classes are shuffled among, by which generator."""
    groups = clusters if label.among == "combinations" else np.arange(len(plane))
    return (plane[["projection_x", "projection_y"]].to_numpy(), label.of(plane), groups,
            np.random.default_rng(0))


def agreement_table(found: Sequence[Planes]) -> pd.DataFrame:
    """Return a row per run, layer and label: `agreement`, `shuffled`, and their difference; and
    `reach`, with its interval."""
    rows = []
    for one in found:
        for layer in one.layers:
            for label, excess in one.excess[layer].items():
                share = float(one.shares[layer][label].mean())
                reached = one.row(one.reach[layer][label])
                rows.append(one.row(excess) | _inputs(one) | {
                    "layer": layer, "label": label, "agreement": share,
                    "shuffled": share - float(excess.mean()), "n": len(excess), **{
                        name: reached[key] for name, key in (
                            ("reach", "value"), ("reach_low", "low"), ("reach_high", "high"))}})
    return pd.DataFrame(rows)


def last_planes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of an agreement table that are of each run's last layer."""
    return table[table["layer"] == table.groupby("run")["layer"].transform("max")]


def _inputs(one: Planes) -> dict[str, str]:
    return {"inputs": one.inputs} if one.inputs else {}


def points_table(found: Sequence[Planes], *, last_alone: bool = False) -> pd.DataFrame:
    """Return the points behind a picture, with few digits: of the first run of each kind."""
    parts = []
    for one in first_of_each(found):
        points = one.points[one.points["layer"] == one.layers[-1]] if last_alone else one.points
        # Terms follow from the combination; of rules the last token's cannot be told from it.
        label = "rule" if "rule" in points else "combination"
        parts.append(pd.DataFrame({
            **_inputs(one), "kind": about(one.member, one.run)["kind"], "layer": points["layer"],
            "x": points["projection_x"].round(1), "y": points["projection_y"].round(1),
            "target": points["target"].round(2), label: points[label]}))
    return pd.concat(parts, ignore_index=True)


def target_over_rule(one: Planes, layers: Sequence[int]) -> np.ndarray:
    """Return per point the agreement on the target minus that on the rule, mean over layers."""
    return np.asarray(np.mean([one.excess[layer]["target"] - one.excess[layer]["rule"]
                               for layer in layers], axis=0))


def first_of_each(found: Sequence[Planes]) -> list[Planes]:
    """Return the first run of each kind, of which the pictures are; of each inputs, in turn."""
    chosen: dict[tuple[str, str], Planes] = {}
    for one in found:
        chosen.setdefault((one.inputs, about(one.member, one.run)["kind"]), one)
    return [chosen[inputs, kind] for inputs in dict.fromkeys(one.inputs for one in found)
            for kind in KIND_TITLES if (inputs, kind) in chosen]


def planes_figure(
    found: Sequence[Planes], labels: Sequence[Label], *, last_alone: bool,
    layers_across: bool = False, title: str = "", inputs: Mapping[str, str] | None = None,
) -> Figure:
    """Return a panel per label and layer (down) and kind (across), of the first run of each.

    last_alone     the last layer alone
    layers_across  layers across, for a single kind
    inputs         of several inputs, side by side: what each is called above its panels

    Below each panel stands the share of neighbours that agree, in brackets that of shuffled labels.
    """
    shown = first_of_each(found)
    layers = sorted({layer for one in shown for layer in one.layers})
    cells = []
    for label, layer, one in product(labels, layers[-1:] if last_alone else layers, shown):
        if layer not in one.excess:
            continue
        plane = where(one.points, layer=layer)
        share = one.shares[layer][label.name].mean()
        shuffled = share - one.excess[layer][label.name].mean()
        kind, number = KIND_TITLES[about(one.member, one.run)["kind"]], f"layer {layer}"
        kind += f"\n{inputs[one.inputs]}" if inputs else ""
        down = label.name if last_alone or layers_across else f"{label.name}\n{number}"
        cells.append(ScatterCell(
            down, number if layers_across else kind,
            plane[["projection_x", "projection_y"]].to_numpy(),
            plane[label.column].rename(label.name), f"neighbours {share:.2f} ({shuffled:.2f})"))
    figure = scatter_figure(cells, continuous=["target"])
    if title:
        figure.suptitle(title, fontsize=9.5)
    return figure
