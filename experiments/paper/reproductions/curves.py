"""Fig. 2C, 4, 5C, 5D, A3, A4 and A5: what each kind of attention scores, over what was varied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from latentcode.experiments.paper.claims import Claim, Setting
from latentcode.experiments.paper.reproduction import (
    KIND_STYLES,
    KIND_TITLES,
    KINDS,
    LETTERS_PER_INCH,
    Findings,
    Reproduction,
    Work,
    beside_ceiling,
    by_preset,
    final_metrics,
    learning,
    metric_evidence,
    of_kinds,
    scores,
    sentences,
)
from latentcode.experiments.paper.verdicts import COMPARED, evidence
from latentcode.figures.style import GREY, Figure
from latentcode.probes.common.figures import panels

AXIS_TITLES: Mapping[str, str] = {
    "n_examples": "sequence length", "ood_fraction": "held-out share", "d_model": "d_model",
    "n_layers": "layers", "instances": "training instances", "n_heads": "heads",
    "n_features": "features M"}
"""Columns of tables in words."""


@dataclass(frozen=True)
class Row:
    """A metric of every run at its last update: a table, and a row of panels.

    table    its name; rows of the same name are kept as one
    ylabel   of the picture, of which a loss has a logarithmic axis; empty: there is none
    across   column on the horizontal axis
    panels   column that tells panels apart; None: one panel
    opening  how a sentence on it begins; empty: the summary says nothing of it
    setting  which of the settings it is of; default: all
    whole    split that is shown where nothing is held out
    """

    table: str
    split: str
    metric: str
    ylabel: str
    across: str
    panels: str | None = None
    opening: str = ""
    setting: int | None = None
    whole: str | None = None

    def scores(
        self, work: Work, settings: tuple[Setting, ...], axes: tuple[str, ...]
    ) -> pd.DataFrame:
        """Return the metric of every run, with the figure's axes."""
        chosen = settings if self.setting is None else settings[self.setting:self.setting + 1]
        table = scores(work, chosen, self.split, self.metric, axes)
        if self.whole is None:
            return table
        other = scores(work, chosen, self.whole, self.metric, axes)
        return pd.concat([other[other["ood_fraction"] == 0.0], table], ignore_index=True)

    def parts(self, table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
        """Return (title, rows) of every panel."""
        if self.panels is None:
            return [("", table)]
        return [(f"{AXIS_TITLES[self.panels]} {short(float(str(value)))}", rows)
                for value, rows in table.groupby(self.panels)]


@dataclass(frozen=True)
class CurveFigure:
    """A figure of curves, by what tells it from others.

    axes     fields of the configurations that it varies
    note     what a reader must know of it beside the runs
    summary  what the first table says; default: the sentences of its rows
    judged   claim -> its evidence; default: the metric of the first row
    """

    name: str
    title: str
    shows: Mapping[str, tuple[Setting, ...]]
    axes: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    summary: Callable[[pd.DataFrame], str] | None = None
    judged: Mapping[str, Callable[[Work, Claim], pd.DataFrame]] = field(default_factory=dict)

    def measure(self, work: Work) -> Findings:
        """Return the tables of all rows, in words, drawn and as evidence."""
        settings, first = self.shows[work.preset], self.rows[0]
        heading, notes = learning(work, settings)
        tables = [(row, row.scores(work, settings, self.axes)) for row in self.rows]
        # What is shown of other combinations, where nothing is held out, is not spoken of.
        spoken = [(row.opening, table[table["split"] == row.split]) for row, table in tables]
        drawn = [(row, table) for row, table in tables if row.ylabel and len(table)]
        return Findings(
            summary=self.summary(tables[0][1]) if self.summary else sentences(
                *(of_kinds(table, opening) for opening, table in spoken if opening),
                beside_ceiling(spoken[0][1])),
            tables={name: pd.concat([table for row, table in tables if row.table == name],
                                    ignore_index=True)
                    for name in dict.fromkeys(row.table for row in self.rows)},
            figures={self.name: curves_figure(drawn, heading)} if drawn else {},
            evidence={claim.id: self.judged[claim.id](work, claim) if claim.id in self.judged
                      else metric_evidence(work, claim, first.metric, first.split)
                      for claim in work.claims},
            notes=(*notes, *filter(None, [self.note])))


def curves_figure(rows: Sequence[tuple[Row, pd.DataFrame]], heading: str) -> Figure:
    """Return a figure with a row of panels for each table, which has a row per run.

    A point is the mean over the runs of a kind, with its standard error where there are several.
    """
    parts = [row.parts(table) for row, table in rows]
    n_columns = max(map(len, parts))
    width = max(1.75 * n_columns + 1.6, 4.2)
    with panels(len(rows), n_columns, width, 2.2 * len(rows) + 0.3,
                fill(heading, int(LETTERS_PER_INCH * width)), sharey="row") as (figure, grid):
        for line, (row, table), of_row in zip(grid, rows, parts, strict=True):
            for axes in line[len(of_row):]:
                axes.set_visible(False)
            for axes, (title, block) in zip(line, of_row, strict=False):
                _curves(axes, row, table, block)
                axes.set_title(title)
            line[0].set_ylabel(row.ylabel)
        labels = {label: handle for axes in grid.flat
                  for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(labels.values(), labels.keys(), loc="outside right center")
    return figure


def _curves(axes: Axes, row: Row, table: pd.DataFrame, block: pd.DataFrame) -> None:
    """Draw one panel, `block`, of a row whose panels share their axes."""
    ticks = sorted(table[row.across].unique())
    place = {value: i for i, value in enumerate(ticks)}
    for number, (kind, title) in enumerate(KIND_TITLES.items()):
        runs = block[block["kind"] == kind]
        color, marker = KIND_STYLES[kind]
        if runs.empty:
            continue
        groups = runs.groupby(row.across)["value"]
        mean, error = groups.mean(), groups.sem().fillna(0.0)
        # Beside each other, or error bars would hide one another.
        shift = 0.06 * (number - 1)
        axes.errorbar([place[value] + shift for value in mean.index], mean, yerr=error,
                      color=color, marker=marker, markersize=4, capsize=2, label=title)
    if "ceiling" in block:
        best = block.groupby(row.across)["ceiling"].mean()
        where = np.array([place[value] for value in best.index])
        axes.hlines(best, where - 0.35, where + 0.35, color=GREY, linestyle="dashed",
                    linewidth=1.0, label="Bayes-optimal")
    axes.set_xticks(range(len(ticks)), [short(value) for value in ticks])
    axes.set_xlim(-0.5, len(ticks) - 0.5)
    axes.set_xlabel(AXIS_TITLES[row.across])
    if row.metric == "loss":
        axes.set_yscale("log")
        # Losses span less than a decade or two: a few plain numbers rather than powers of ten.
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif 0.0 <= table["value"].min() <= table["value"].max() <= 1.0:
        axes.set_ylim(-0.03, 1.03)


def short(value: float) -> str:
    """Return a number as ticks have it: 0.3, 96, 96 k, 20 M."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value / 1e3:.3g} k" if value >= 1e4 else f"{value:g}"


def largest_difference(work: Work, claim: Claim) -> pd.DataFrame:
    """Return the largest difference between two kinds in R² on `test`, one value per seed."""
    table = final_metrics(work, [claim.setting], "test", "r2")
    kinds = table.groupby(["split_seed", "seed", "kind"])["value"].mean().unstack("kind")
    kinds = kinds.reindex(columns=list(KIND_TITLES)).dropna()
    spread = (kinds.max(axis=1) - kinds.min(axis=1)).rename("value").reset_index()
    return evidence({"member": COMPARED, **{str(key): value for key, value in row.items()}}
                    for row in spread.to_dict("records"))


def no_kind_is_always_lowest(work: Work, claim: Claim) -> pd.DataFrame:
    """Has no kind the lowest mean loss on `train` in every cell? Evidence of an exact rule.

    A cell is a member of the setting but for the kind; those without all three kinds are left out.
    """
    table = final_metrics(work, [claim.setting], "train", "loss")
    cells = table["member"].str.replace(r"kind=[a-z]+,?", "", regex=True)
    means = table.groupby([cells, "kind"])["value"].mean().unstack("kind")
    means = means.reindex(columns=list(KIND_TITLES)).dropna()
    if means.empty:
        return evidence([])
    lowest = means.idxmin(axis=1)
    return evidence([{"member": "no kind is lowest in every cell",
                      "value": float(lowest.nunique() > 1), "n": len(means)}])


def over_heads(ood: pd.DataFrame) -> str:
    """Say what one head scores, and what more do; with one there is no hypernetwork."""
    single, more = ood[ood["n_heads"] == 1], ood[ood["n_heads"] > 1]
    if single.empty:
        return of_kinds(more, "OOD accuracy")
    return sentences(of_kinds(single, "OOD accuracy with one head"),
                     of_kinds(more, "With more heads") if len(more) else "", beside_ceiling(ood))


def over_features(ood: pd.DataFrame) -> str:
    """Say what is scored with every number of features."""
    return sentences(*(of_kinds(rows, f"OOD accuracy with {m} features")
                       for m, rows in ood.groupby("n_features")),
                     beside_ceiling(ood)) or of_kinds(ood, "OOD accuracy")


REDUCED = ("task.n_features=2", "training.steps=750")
HELD_OUT = by_preset(
    "logic", paper=("task.n_examples=16,32,64,96", "task.ood_fraction=0.3,0.5,0.7"),
    small=("task.n_examples=16,32", "task.ood_fraction=0.3,0.7", "training.steps=1000"),
    smoke=("task.n_examples=6,8",))
"""Examples in context, and shares of functions that are held out."""
WIDTHS = "model.n_heads+model.d_model+model.d_mlp="
"""The width factor scales the heads too, as the official code does."""
INSTANCES = "training.steps=78125,156250,312500"
SIZES: Mapping[str, tuple[Setting, ...]] = {
    "paper": (
        Setting("paper", "sraven", (
            KINDS, f"{WIDTHS}[16,128,256],[32,256,512],[64,512,1024]", INSTANCES)),
        Setting("paper", "sraven", (KINDS, "model.n_layers=4,8,16", INSTANCES))),
    "small": (
        Setting("small", "sraven", (KINDS, f"{WIDTHS}[8,64,128],[16,128,256]",
                                    "task.n_features=2", "training.steps=750,1500")),
        Setting("small", "sraven", (KINDS, "model.n_layers=4,8", *REDUCED))),
    "smoke": (
        Setting("smoke", "sraven", (KINDS, f"{WIDTHS}[4,16,32]", "training.steps=15,30")),
        Setting("smoke", "sraven", (KINDS, "model.n_layers=1,2", "training.steps=30")))}
"""Widths, and depths, each over instances."""
SCALED = ("model.n_heads", "model.d_model", "model.n_layers", "training.steps")
HEADS = "model.n_heads+model.d_head+model.d_head_v="
"""The sum of the head dimensions stays what it is with 16 heads of 4."""
LOSS_NOTE = ("The training loss is that of the finished model without dropout, on fresh instances "
             "of the {} of training.")

FIGURES: tuple[CurveFigure, ...] = (
    CurveFigure(
        "fig2c", "R² on held-out functions, over the examples in context and the held-out share",
        HELD_OUT, ("task.n_examples", "task.ood_fraction"),
        (Row("r2", "ood", "r2", "R² on held-out functions", "n_examples", "ood_fraction",
             opening="R² on held-out functions"),)),
    CurveFigure(
        "figA3",
        "Fuzzy logic on held-out functions, on those of training and on unknown terms; training "
        "loss", HELD_OUT, ("task.n_examples", "task.ood_fraction"),
        (Row("scores", "ood", "r2", "A held out, R²", "n_examples", "ood_fraction"),
         Row("scores", "test", "r2", "B training, R²", "n_examples", "ood_fraction",
             opening="R² on functions of training"),
         Row("scores", "unknown", "r2", "C unknown terms, R²", "n_examples", "ood_fraction",
             opening="R² on unknown terms"),
         Row("scores", "train", "loss", "D training loss", "n_examples", "ood_fraction")),
        LOSS_NOTE.format("functions"),
        judged={"figA3-unknown-terms-fail": partial(metric_evidence, metric="r2", split="unknown"),
                "figA3-alike-in-distribution": largest_difference,
                "figA3-no-consistent-order-of-training-loss": no_kind_is_always_lowest}),
    CurveFigure(
        "fig4", "OOD accuracy on SRAVEN over training instances, for several widths and depths",
        SIZES, SCALED,
        (Row("widths", "ood", "accuracy", "A width, OOD accuracy", "instances", "d_model",
             opening="OOD accuracy over widths and instances", setting=0),
         Row("depths", "ood", "accuracy", "B depth, OOD accuracy", "instances", "n_layers",
             opening="Over depths and instances", setting=1)),
        "The width factor scales the number of heads too, as the official code does."),
    CurveFigure(
        "figA4", "Training loss on SRAVEN over training instances, for several widths and depths",
        SIZES, SCALED,
        (Row("widths", "train", "loss", "A width, training loss", "instances", "d_model",
             opening="Training loss over widths and instances", setting=0),
         Row("depths", "train", "loss", "B depth, training loss", "instances", "n_layers",
             opening="Over depths and instances", setting=1)),
        LOSS_NOTE.format("combinations"),
        judged=dict.fromkeys(("figA4-no-consistent-order-over-widths",
                              "figA4-no-consistent-order-over-depths"), no_kind_is_always_lowest)),
    CurveFigure(
        "fig5c", "OOD accuracy on SRAVEN over the number of heads",
        by_preset("sraven", paper=(f"{HEADS}[1,64,64],[2,32,32],[4,16,16],[8,8,8],[16,4,4]",),
              small=(f"{HEADS}[1,64,64],[4,16,16],[16,4,4]", *REDUCED),
              smoke=(f"{HEADS}[1,8,8],[4,2,2]",)),
        ("model.n_heads", "model.d_head", "model.d_head_v"),
        (Row("accuracy", "ood", "accuracy", "OOD accuracy", "n_heads"),),
        "The sum of the head dimensions is the same for every number of heads.", over_heads),
    CurveFigure(
        "fig5d", "OOD accuracy on SRAVEN over the number of features",
        by_preset("sraven", paper=("task.n_features=2,3,4",),
              small=("task.n_features=2,3", "training.steps=750"), smoke=("task.n_features=2,3",)),
        ("task.n_features",), (Row("accuracy", "ood", "accuracy", "OOD accuracy", "n_features"),),
        "A single feature is left out: a held-out combination would then be a rule that training "
        "never had.", over_features),
    CurveFigure(
        "figA5", "OOD accuracy on SRAVEN over the held-out share of rule combinations",
        by_preset("sraven", paper=("task.ood_fraction=0.0,0.25,0.5,0.75",),
              small=("task.ood_fraction=0.0,0.25,0.5,0.75", *REDUCED),
              smoke=("task.ood_fraction=0.0,0.25",)),
        ("task.ood_fraction",),
        (Row("accuracy", "ood", "accuracy", "OOD accuracy", "ood_fraction",
             opening="OOD accuracy over held-out shares", whole="test"),
         Row("training", "test", "accuracy", "", "ood_fraction")),
        "At a share of 0 no combination is held out: the accuracy there is on fresh instances of "
        "all combinations."),
)
REPRODUCTIONS = tuple(
    Reproduction(figure.name, figure.title, figure.shows, figure.measure) for figure in FIGURES)
