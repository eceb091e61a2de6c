"""Scores at the end of training, over what was varied, and beside the printed ones.

Fig. 2C, 4, 5C, 5D, A3, A4 and A5 are curves of what each kind of attention scores, Fig. 6 those of
language models; Table A1, the 14 ablations, and the reviews' table of nonlinearities have ours
beside the printed numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import fill

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from torch import Tensor

from latentcode.experiments.paper.claims import Bound, Claim, Setting, printed
from latentcode.experiments.paper.reproduction import (
    KIND_STYLES,
    KIND_TITLES,
    KINDS,
    LETTERS_PER_INCH,
    METRIC,
    NOTHING,
    Findings,
    Reproduction,
    Work,
    beside_ceiling,
    by_preset,
    count,
    final_metrics,
    joined,
    learning,
    metric_evidence,
    of_kinds,
    scores,
    sentences,
)
from latentcode.experiments.paper.verdicts import COMPARED, evidence
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.metrics import mean_metric
from latentcode.models.config import kind_of
from latentcode.models.hooks import evaluating
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import where
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.tasks.text.task import Text
from latentcode.tasks.text.tokens import previous_same

# Curves

AXIS_TITLES: Mapping[str, str] = {
    "n_examples": "sequence length", "ood_fraction": "held-out share", "d_model": "d_model",
    "n_layers": "layers", "instances": "training instances", "n_heads": "heads",
    "n_features": "features M"}
"""Columns of tables in words."""


@dataclass(frozen=True)
class Row:
    """A metric of every run at its last update: a table, and a row of panels.

    Attributes:
        table: Its name; rows of the same name are kept as one.
        split: Where the metric is measured.
        metric: Its name.
        ylabel: Of the picture, of which a loss has a logarithmic axis; empty: there is none.
        across: Column on the horizontal axis.
        panels: Column that tells panels apart; None: one panel.
        opening: How a sentence on it begins; with {} there is one for each value of `across`;
            empty: the summary says nothing of it.
        setting: Which of the settings it is of; default: all.
        whole: Split that is shown where nothing is held out.
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

    def in_words(self, table: pd.DataFrame) -> str:
        """Return the sentences on a table; combinations of `whole` are not spoken of."""
        table = table[table["split"] == self.split]
        if "{}" not in self.opening or table.empty:
            return of_kinds(table, self.opening) if self.opening else ""
        return sentences(*(of_kinds(rows, self.opening.format(short(float(str(value)))))
                           for value, rows in table.groupby(self.across)))


def curve_figure(
    name: str, title: str, shows: Mapping[str, tuple[Setting, ...]], axes: tuple[str, ...],
    rows: Sequence[Row], note: str = "",
    judged: Mapping[str, Callable[[Work, Claim], pd.DataFrame]] | None = None,
) -> Reproduction:
    """Return a figure of curves, by what tells it from others.

    Args:
        name: One of `RESULTS`.
        title: What it shows.
        shows: Preset -> settings.
        axes: Fields of the configurations that it varies.
        rows: Its tables and rows of panels.
        note: What a reader must know of it beside the runs.
        judged: Claim -> its evidence; default: the metric of the first row.
    """

    def measure(work: Work) -> Findings:
        settings, first = shows[work.preset], rows[0]
        heading, notes = learning(work, settings)
        tables = [(row, row.scores(work, settings, axes)) for row in rows]
        drawn = [(row, table) for row, table in tables if row.ylabel and len(table)]
        by_first = partial(metric_evidence, metric=first.metric, split=first.split)
        return Findings(
            summary=sentences(*(row.in_words(table) for row, table in tables),
                              beside_ceiling(tables[0][1])),
            tables={kept: pd.concat([table for row, table in tables if row.table == kept],
                                    ignore_index=True)
                    for kept in dict.fromkeys(row.table for row in rows)},
            figures={name: curves_figure(drawn, heading)} if drawn else {},
            evidence={claim.id: (judged or {}).get(claim.id, by_first)(work, claim)
                      for claim in work.claims},
            notes=(*notes, *filter(None, [note])))

    return Reproduction(name, title, shows, measure)


def curves_figure(rows: Sequence[tuple[Row, pd.DataFrame]], heading: str) -> Figure:
    """Return a figure with a row of panels for each table, which has a row per run.

    A point is the mean over the runs of a kind, with its standard error where there are several.
    """
    parts = [[("", table)] if row.panels is None else [
        (f"{AXIS_TITLES[row.panels]} {short(float(str(value)))}", block)
        for value, block in table.groupby(row.panels)] for row, table in rows]
    n_columns = max(map(len, parts))
    width = max(1.75 * n_columns + 1.6, 4.2)
    with panels(len(rows), n_columns, width, 2.2 * len(rows) + 0.3,
                fill(heading, int(LETTERS_PER_INCH * width)), sharey="row") as (figure, grid):
        for line, (row, table), blocks in zip(grid, rows, parts, strict=True):
            for axes in line[len(blocks):]:
                axes.set_visible(False)
            for axes, (title, block) in zip(line, blocks, strict=False):
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
    place = pd.Series(range(len(ticks)), index=ticks)
    for number, (kind, title) in enumerate(KIND_TITLES.items()):
        values = block[block["kind"] == kind].groupby(row.across)["value"]
        if values.ngroups:
            color, marker = KIND_STYLES[kind]
            mean = values.mean()
            # Beside each other, or error bars would hide one another.
            axes.errorbar(place[mean.index] + 0.06 * (number - 1), mean,
                          yerr=values.sem().fillna(0.0), color=color, marker=marker, markersize=4,
                          capsize=2, label=title)
    if "ceiling" in block:
        best = block.groupby(row.across)["ceiling"].mean()
        axes.hlines(best, place[best.index] - 0.35, place[best.index] + 0.35, color=GREY,
                    linestyle="dashed", linewidth=1.0, label="Bayes-optimal")
    axes.set_xticks(range(len(ticks)), [short(value) for value in ticks])
    axes.set(xlim=(-0.5, len(ticks) - 0.5), xlabel=AXIS_TITLES[row.across])
    if row.metric == "loss":
        axes.set_yscale("log")
        # Losses span less than a decade or two: a few plain numbers rather than powers of ten.
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif table["value"].between(0.0, 1.0).all():
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
    return evidence(spread.to_dict("records"), member=COMPARED)


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

FIGURES: tuple[Reproduction, ...] = (
    curve_figure(
        "fig2c", "R² on held-out functions, over the examples in context and the held-out share",
        HELD_OUT, ("task.n_examples", "task.ood_fraction"),
        (Row("r2", "ood", "r2", "R² on held-out functions", "n_examples", "ood_fraction",
             opening="R² on held-out functions"),)),
    curve_figure(
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
    curve_figure(
        "fig4", "OOD accuracy on SRAVEN over training instances, for several widths and depths",
        SIZES, SCALED,
        (Row("widths", "ood", "accuracy", "A width, OOD accuracy", "instances", "d_model",
             opening="OOD accuracy over widths and instances", setting=0),
         Row("depths", "ood", "accuracy", "B depth, OOD accuracy", "instances", "n_layers",
             opening="Over depths and instances", setting=1)),
        "The width factor scales the number of heads too, as the official code does."),
    curve_figure(
        "figA4", "Training loss on SRAVEN over training instances, for several widths and depths",
        SIZES, SCALED,
        (Row("widths", "train", "loss", "A width, training loss", "instances", "d_model",
             opening="Training loss over widths and instances", setting=0),
         Row("depths", "train", "loss", "B depth, training loss", "instances", "n_layers",
             opening="Over depths and instances", setting=1)),
        LOSS_NOTE.format("combinations"),
        judged=dict.fromkeys(("figA4-no-consistent-order-over-widths",
                              "figA4-no-consistent-order-over-depths"), no_kind_is_always_lowest)),
    curve_figure(
        "fig5c", "OOD accuracy on SRAVEN over the number of heads",
        by_preset("sraven", paper=(f"{HEADS}[1,64,64],[2,32,32],[4,16,16],[8,8,8],[16,4,4]",),
              small=(f"{HEADS}[1,64,64],[4,16,16],[16,4,4]", *REDUCED),
              smoke=(f"{HEADS}[1,8,8],[4,2,2]",)),
        ("model.n_heads", "model.d_head", "model.d_head_v"),
        (Row("accuracy", "ood", "accuracy", "OOD accuracy", "n_heads",
             opening="OOD accuracy at H = {}"),),
        "The sum of the head dimensions is the same for every number of heads."),
    curve_figure(
        "fig5d", "OOD accuracy on SRAVEN over the number of features",
        by_preset("sraven", paper=("task.n_features=2,3,4",),
              small=("task.n_features=2,3", "training.steps=750"), smoke=("task.n_features=2,3",)),
        ("task.n_features",),
        (Row("accuracy", "ood", "accuracy", "OOD accuracy", "n_features",
             opening="OOD accuracy at M = {}"),),
        "A single feature is left out: a held-out combination would then be a rule that training "
        "never had."),
    curve_figure(
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

# Tables of printed numbers

ROWS = {
    "softmax": "Softmax attention",
    "linear": "Linear attention",
    "hyla": "HYLA",
    "linear_rms_head": "Linear + RMSHead",
    "linear_rms_head_relu": "Linear + RMSHead + nonlinear value ?",
    "hyla_no_rms_head": "HYLA − RMSHead",
    "hyla_linear": "HYLA − nonlinearity",
    "hyla_linear_no_rms_head": "HYLA − nonlinearity − RMSHead",
    "hyla_softmax": "HYLA − RMSHead + softmax ?",
    "hyla_deep": "HYLA + deep value network",
    "hyla_softmax_rms_head": "HYLA + softmax ?",
    "softmax_moe": "Softmax attention + MoE",
    "linear_moe": "Linear attention + MoE",
    "hyla_moe": "HYLA + MoE",
}
"""The rows of Table A1 as they are printed; `?`: another reading is possible, and the table says
ours."""
ALL_KINDS = f"kind={','.join(ROWS)}"
OF_TABLE = {
    "paper": (Setting("paper", "logic", (ALL_KINDS,)), Setting("paper", "sraven", (ALL_KINDS,))),
    "small": (Setting("small", "logic", (ALL_KINDS, "training.steps=500")),
              Setting("small", "sraven", (ALL_KINDS, "task.n_features=2", "training.steps=750"))),
    "smoke": (Setting("smoke", "logic", ("kind=softmax,linear,hyla,hyla_deep",)),
              Setting("smoke", "sraven", ("kind=softmax,linear,hyla",)))}
COLUMNS = {"logic": "Fuzzy logic, 100 × R² on held-out functions",
           "sraven": "SRAVEN, 100 × OOD accuracy"}
NONLINEARITIES = "model.nonlinearity=gelu,relu,sigmoid,silu,tanh"
OF_REVIEWS = {
    preset: (Setting(preset, "sraven", ("kind=hyla", nonlinearities, *reduced)),
             Setting(preset, "sraven", ("kind=softmax", *reduced)))
    for preset, nonlinearities, reduced in (
        ("paper", NONLINEARITIES, ()),
        ("small", NONLINEARITIES, ("task.n_features=2", "training.steps=750")),
        ("smoke", "model.nonlinearity=relu,silu", ()))}


def ablations(work: Work) -> Findings:
    """Return R² and accuracy on `ood` of every row, beside the published ones."""
    settings = OF_TABLE[work.preset]
    fuzzy, sraven = (scores(work, [setting], "ood", METRIC[setting.task]) for setting in settings)
    rows = pd.concat([beside("tabA1", task, "kind", table, work.preset) for task, table in (
        ("logic", fuzzy), ("sraven", sraven))], ignore_index=True)
    rows["row"] = rows["row"].map(ROWS)
    measured = [table for table in (fuzzy, sraven) if len(table)]
    summary = sentences(
        f"Of the {len(ROWS)} rows {fuzzy['kind'].nunique()} have runs on fuzzy logic and "
        f"{sraven['kind'].nunique()} on SRAVEN.",
        *(of_kinds(table, quantity) for table, quantity in (
            (fuzzy, "R² on held-out functions"), (sraven, "OOD accuracy on SRAVEN"))
          if table["kind"].isin(list(KIND_TITLES)).any()),
        beside_ceiling(sraven))
    return _beside_printed(
        "tabA1", work, settings, summary if measured else NOTHING, rows,
        pd.concat(measured or [fuzzy, sraven], ignore_index=True),
        {title: rows[rows["task"] == task] for task, title in COLUMNS.items()},
        "Rows marked ? leave room for another reading; the column `reading` says which one was "
        "run.")


def nonlinearities(work: Work) -> Findings:
    """Return accuracy on `ood` of HYLA with every nonlinearity, and that of softmax attention."""
    settings = OF_REVIEWS[work.preset]
    runs = scores(work, settings, "ood", "accuracy", ["model.nonlinearity"])
    rows = beside("nonlinearity", "sraven", "nonlinearity", runs[runs["kind"] != "softmax"],
                  work.preset)
    numbers = ", ".join(f"{row.row} {row.ours:.1f}" for row in rows[rows["n"] > 0].itertuples())
    softmax = in_points(runs[runs["kind"] == "softmax"])
    return _beside_printed(
        "nonlinearity", work, settings,
        sentences(f"OOD accuracy of HYLA in points: {numbers}." if numbers else "",
                  f"Softmax attention: {softmax['ours']:.1f}." if softmax["n"] else "",
                  beside_ceiling(runs)) or NOTHING,
        rows, runs, {"100 × OOD accuracy": rows})


def _beside_printed(
    name: str, work: Work, settings: Sequence[Setting], summary: str, rows: pd.DataFrame,
    runs: pd.DataFrame, columns: Mapping[str, pd.DataFrame], *notes: str,
) -> Findings:
    """Return the findings of a table; `columns` are its rows by what the numbers are."""
    heading, of_runs = learning(work, settings)
    return Findings(
        summary=summary,
        tables={"rows": rows, "runs": runs},
        figures={name: _figure(columns, heading)} if rows["ours"].notna().any() else {},
        evidence={claim.id: metric_evidence(work, claim, METRIC[claim.setting.task], "ood")
                  for claim in work.claims},
        notes=(*of_runs, *notes))


def in_points(values: pd.DataFrame) -> dict[str, float]:
    """Return 100 x the mean of `value` over splits, its standard error, and how many splits.

    Runs that share a split count as their mean, as the published seed draws the split too.
    """
    splits = mean_metric(100.0 * values.groupby("split_seed")["value"].mean().to_numpy())
    return {"ours": splits.mean, "ours_error": splits.se, "n": splits.n}


def beside(result: str, task: str, axis: str, runs: pd.DataFrame, preset: str) -> pd.DataFrame:
    """Return a row per number that a table prints of a task, in points, with ours beside it.

    The column `axis` of our runs, `kind` or `nonlinearity`, names the rows. At preset `paper` ours
    are of the published setting, so that a difference says something.
    """
    rows = []
    for claim in printed(result):
        if claim.setting.task != task:
            continue
        assert claim.published is not None
        config, = claim.setting.grid.members().values()
        name = kind_of(config.model) if axis == "kind" else config.model.nonlinearity
        ours = in_points(runs[runs[axis] == name])
        difference = {"difference": ours["ours"] - claim.published.value}
        rows.append({"row": name, "task": task, "published": claim.published.value,
                     "published_error": claim.published.error, **ours,
                     **(difference if preset == "paper" else {}), "reading": claim.reading})
    return pd.DataFrame(rows)


def _figure(columns: Mapping[str, pd.DataFrame], heading: str) -> Figure:
    """Return numbers of ours beside published ones: a panel per column, a line per row."""
    n_rows, width = max(map(len, columns.values())), 4.1 * len(columns) + 2.2
    with panels(1, len(columns), width, 0.27 * n_rows + 1.3,
                fill(heading, int(LETTERS_PER_INCH * width)), sharey=True) as (figure, (row,)):
        for axes, (xlabel, table) in zip(row, columns.items(), strict=True):
            lines = np.arange(len(table))
            axes.errorbar(table["published"], lines - 0.13, xerr=table["published_error"], fmt="D",
                          color=GREY, markersize=3.5, capsize=2, label="published")
            axes.errorbar(table["ours"], lines + 0.13, xerr=table["ours_error"].fillna(0.0),
                          fmt="o", color=PALETTE[0], markersize=4, capsize=2, label="ours")
            axes.set_yticks(lines, table["row"])
            axes.set(xlabel=xlabel, ylim=(len(table) - 0.5, -0.5))
            axes.grid(False, axis="y")
            for line, values in zip(lines, table.to_dict("records"), strict=True):
                theirs = f"{values['published']:.1f} ± {values['published_error']:.1f}"
                error = f" ± {values['ours_error']:.1f}" if values["n"] > 1 else ""
                ours = f"{values['ours']:.1f}{error} ({values['n']:.0f})"
                for text, points, color in (
                        (theirs, 6, GREY), (ours if values["n"] else "no run", 64, PALETTE[0])):
                    axes.annotate(text, (1.0, line), xycoords=axes.get_yaxis_transform(),
                                  xytext=(points, 0), textcoords="offset points", va="center",
                                  fontsize=7.5, color=color)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


# Fig. 6: language models
#
# The loss on held-out text over training, and by what the text has shown before. A token repeats an
# earlier pair where it follows the same token as earlier in the excerpt, `... A B ... A B`, so that
# it can be copied (the induction pair). Such pairs are more frequent than others; their control are
# the same pairs where they are new. Who knows nothing but which token follows which predicts both
# equally well.

OF_TEXT = by_preset("language", small=("task.text=text/packages",), smoke=("task.text=text/smoke",))
REPEATED, CONTROL = "repeats an earlier pair", "the same pairs, where they are new"
NEW, ALL = "the pair is new", "all tokens"
BATCH = 32
OF_LOSSES = ("Loss is the mean cross-entropy per token, in nats.",
         "A token repeats an earlier pair where it follows the same token as earlier in its "
         "excerpt. The control are the same pairs, each as often, where they are new.")


def language_models(work: Work) -> Findings:
    """Return the loss over training, at its end, and of tokens that can be copied."""
    runs = list(work.runs_of(OF_TEXT[work.preset]))
    judged = {}
    for claim in work.claims:
        losses = metric_evidence(work, claim, "loss", "test")
        judged[claim.id] = shares(losses) if isinstance(claim.rule, Bound) else losses
    if not runs:
        return Findings(NOTHING, {}, evidence=judged)
    curves = []
    for member, run in runs:
        table = where(run.metrics(), split="test", metric="loss").query("step > 0")
        at_once = run.config.training.batch_size * run.config.task.n_tokens
        curves.append((member, run, pd.DataFrame({
            "step": table["step"], "tokens": table["step"] * at_once, "value": table["mean"],
            "se": table["se"]})))
    every = joined(curves)
    tokens = joined((member, run, work.table(run, token_losses)) for member, run in runs)
    final = every[every["step"] == every.groupby("run")["step"].transform("max")]

    kinds = []
    for kind, values in final.groupby("kind", sort=False)["value"]:
        ends = f" ({values.min():.3f} to {values.max():.3f})" * (len(values) > 1)
        title = KIND_TITLES[str(kind)]
        kinds.append(f"{title} {values.mean():.3f}{ends}, {count(len(values), 'run')}")
    notes = list(OF_LOSSES)
    if work.preset != "paper":
        notes.append("Small models and little text: the numbers do not compare with the paper's.")
    revisions = sorted({getattr(run.config.task, "revision", "") for _, run in runs})
    if len(revisions) > 1:
        notes.append(f"The runs are of {len(revisions)} states of the text "
                     f"({', '.join(revisions)}), so that their losses do not compare.")
    return Findings(
        summary=sentences(f"Loss on held-out text at the end of training: {'; '.join(kinds)}.",
                          gains_in_words(tokens)),
        tables={"final": final, "tokens": tokens},
        figures={"fig6": _losses_figure(every, tokens)},
        evidence=judged, notes=tuple(notes), raw={"curves": every})


def pairs_of(tokens: Tensor) -> Tensor:
    """Return a number for each pair (x_t, x_t+1) of [N, S] tokens: the same for the same pair."""
    ids = tokens[:, :-1] * (int(tokens.max()) + 1) + tokens[:, 1:]
    return ids.unique(return_inverse=True)[1]


def repeats_a_pair(tokens: Tensor) -> Tensor:
    """Whether (x_t, x_t+1) = (x_s, x_s+1) for an s < t, of every token t + 1 of [N, S] tokens."""
    return previous_same(pairs_of(tokens)) >= 0


def token_losses(run: Run, *, device: str = "cpu") -> pd.DataFrame:
    """Return the mean loss of each class of tokens over all excerpts of `test`, in nats.

    Rows: class, loss, n. The first two are of the pairs that occur in both; the control has every
    pair as often as it is repeated: sum_p n_p mean loss of p where it is new / sum_p n_p.
    """
    task, model = make_task(run.config.task), run.load_model().to(device)
    assert isinstance(task, Text)
    tokens = task.excerpts("test").tokens
    parts = []
    with evaluating(model):
        for batch in tokens.split(BATCH):
            logits = model(batch[:, :-1].to(device))
            parts.append(F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten().to(device),
                                         reduction="none").cpu())
    return by_class(torch.cat(parts).double().numpy(), pairs_of(tokens).flatten().numpy(),
                    repeats_a_pair(tokens).flatten().numpy())


def by_class(losses: np.ndarray, pairs: np.ndarray, repeated: np.ndarray) -> pd.DataFrame:
    """Return what `token_losses` does, of the loss, the pair and the class of every token."""
    size = int(pairs.max()) + 1
    (n, total), (n_new, total_new) = (
        (np.bincount(pairs[chosen], minlength=size),
         np.bincount(pairs[chosen], losses[chosen], size)) for chosen in (repeated, ~repeated))
    both = (n > 0) & (n_new > 0)
    n_both = n[both].sum() or np.nan  # without any there is no mean
    rows = [(REPEATED, total[both].sum() / n_both, n[both].sum()),
            (CONTROL, (n * total_new)[both] @ (1.0 / n_new[both]) / n_both, n_new[both].sum()),
            (NEW, losses[~repeated].mean(), n_new.sum()),
            (ALL, losses.mean(), len(losses))]
    return pd.DataFrame(rows, columns=["class", "loss", "n"])


def shares(losses: pd.DataFrame) -> pd.DataFrame:
    """(linear - HYLA) / (linear - softmax) of the runs of each seed, where softmax is ahead.

    Both the losses and the shares are evidence, the first with a row per run.
    """
    kinds = losses["member"].str.extract(r"kind=(\w+)")[0]
    of_kind = losses.assign(kind=kinds).pivot(index="seed", columns="kind", values="value")
    complete = of_kind.reindex(columns=list(KIND_TITLES)).dropna()
    gap = complete["linear"] - complete["softmax"]
    share = (complete["linear"] - complete["hyla"]) / gap
    return evidence({"member": COMPARED, "run": f"seed {seed}", "seed": seed, "split_seed": seed,
                     "value": value} for seed, value in share[gap > 0].items())


def gains_in_words(tokens: pd.DataFrame) -> str:
    """Say where softmax and HYLA gain over linear attention."""
    means = tokens.groupby(["class", "kind"])["loss"].mean().unstack("kind")
    kinds = [kind for kind in KIND_TITLES if kind in means and kind != "linear"]
    if "linear" not in means or not kinds:
        return ""
    gains = means[kinds].rsub(means["linear"], axis="index").round(3) + 0.0  # no -0.000
    numbers = ", ".join(f"{KIND_TITLES[kind]} {gains[kind][REPEATED]:.3f} and "
                        f"{gains[kind][CONTROL]:.3f}" for kind in kinds)
    return ("Lower than the loss of linear attention on tokens that repeat an earlier pair, and on "
            f"the same pairs where they are new: {numbers}.")


def _losses_figure(curves: pd.DataFrame, tokens: pd.DataFrame) -> Figure:
    """Return losses over tokens (A) and those of two classes at the end (B), as mean and range."""
    with panels(1, 2, 7.2, 2.8, width_ratios=(3, 2)) as (figure, ((left, right),)):
        for number, (kind, title) in enumerate(KIND_TITLES.items()):
            rows = curves[curves["kind"] == kind]
            if rows.empty:
                continue
            color, marker = KIND_STYLES[kind]
            values = rows.groupby("tokens")["value"]
            left.plot(values.mean(), color=color, marker=marker, markersize=3, label=title)
            left.fill_between(values.min().index, values.min(), values.max(), color=color,
                              alpha=0.2, linewidth=0)
            losses = tokens[tokens["kind"] == kind].groupby("class")["loss"].agg(
                ["mean", "min", "max"]).reindex([REPEATED, CONTROL])
            right.errorbar(np.arange(2) + 0.12 * (number - 1), losses["mean"], yerr=[
                losses["mean"] - losses["min"], losses["max"] - losses["mean"]], color=color,
                marker=marker, markersize=4, capsize=2, linestyle="")
        left.xaxis.set_major_locator(MaxNLocator(5))
        left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        left.set(xlabel="tokens", ylabel="loss on held-out text, nats", title="A")
        right.set_xticks([0, 1], ["repeats an\nearlier pair", "same pairs,\nwhere new"])
        right.set(xlim=(-0.5, 1.5), title="B")
        figure.legend(*left.get_legend_handles_labels(), loc="outside right upper")
    return figure


REPRODUCTIONS = (
    *FIGURES,
    Reproduction("tabA1", "The ablations of Table A1 on held-out functions and rule combinations",
                 OF_TABLE, ablations),
    Reproduction("nonlinearity", "Nonlinearities in the value network of HYLA, on SRAVEN",
                 OF_REVIEWS, nonlinearities),
    Reproduction(
        "fig6",
        "Language models: loss on held-out text over training, for softmax, linear and HYLA "
        "attention", OF_TEXT, language_models))
