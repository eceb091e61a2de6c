"""The outcome of decoding: scores beside their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.style import FEATURE_STYLES, GREY, Figure, category_styles
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.figures import (
    feature_handles,
    features_in,
    layers_in,
    name_panels,
    panels,
    points_per_layer,
    reach,
)
from latentcode.probes.common.results import (
    CONTROLS,
    FIGURE,
    TableResult,
    blocks,
    distinct,
    where,
    with_interval,
)
from latentcode.probes.common.shared import shared_caveat

MODELS = ("trained", "untrained", "shuffled")
"""Whose features are read: those of the model, of its initial weights, and of the model with
labels of other instances."""
HEADLINE: tuple[str, ...] = ("accuracy", "f1")
"""The metric that is quoted first: accuracy of single-label, F1 of multi-label problems."""
METRIC_NAMES = {"accuracy": "accuracy", "macro_f1": "macro F1", "f1": "F1",
                "balanced_accuracy": "balanced accuracy", "log_loss": "log loss (nats)"}
"""Metrics in words; log losses are in results of earlier versions alone."""
MODEL_STYLES: dict[str, dict[str, Any]] = {
    "trained": {"marker": "o"}, "untrained": {"marker": "o", "markerfacecolor": "white"},
    "shuffled": {"marker": "x", "alpha": 0.35}}
"""How the points of a model are drawn: filled, hollow, and faint for labels of others."""


def named(features: str, model: str = "trained") -> str:
    """Return `row`, `untrained row` or `shuffled row`; of the code the control's name alone."""
    if model == "trained":
        return features
    return model if features == "code" else f"{model} {features}"


def parted(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with column `model`, one of `MODELS`, and `features` without it."""
    model = table["features"].str.extract(f"^({'|'.join(MODELS[1:])})(?: |$)")[0]
    bare = [name if of not in MODELS else name.removeprefix(of).strip() or "code"
            for name, of in zip(table["features"], model, strict=True)]
    return table.assign(features=bare, model=model.fillna(MODELS[0]))


@dataclass(frozen=True, repr=False)
class DecodingResult(TableResult):
    """Scores of probes beside their controls.

    table      one row per layer (a number, or `all` together), pair, label, features, width and
               metric: `width` to which features were reduced (empty: all dimensions), `size`, the
               numbers they have, and `dimensions`, those that the probe read; `value`, its 95 %
               interval `low`, `high` clustered by held-out combination (NaN for a single one),
               `chance`, the best constant answer's score, the numbers of instances, combinations
               and classes, held-out instances of classes that training lacks (`n_unseen`), `C`, and
               whether the optimiser `converged`. Features that do not vary have no dimension, and
               no value, where they were reduced
    per_class  one row per layer, pair, label, features, width and class: `f1`, `low`, `high`,
               instances
    given      one row per layer, pair, label, features, width and what is `given` beside them:
               the log loss of the probe that knows this alone (`known`), that of the one that has
               the features, too (`with_features`), and `gain`, the difference, with its interval,
               in nats. Shuffled are features of another instance: what is lost by reading nothing.
               Empty unless it was asked for
    contrasts  one row per layer, pair, label, width, features of the trained model, metric
               (`quantity`) and what they are measured `against`: shuffled labels, the untrained
               model, the residual stream, of whole texts the `bag` of their tokens
               (`probes.decoding.features`), the best constant answer (`chance`), and the same
               features of the first layer in which they vary (`layer 0`); see `Contrasts`
    settings   everything else that determines the numbers
    """

    FORMAT = "latentcode.decoding"
    SHOWS = "score on held-out combinations, 95 % interval"
    COLUMNS: ClassVar = {
        "table": ("layer", "pair", "label", "features", "width", "size", "dimensions", "metric",
                  "value", "low", "high", "chance", "n_train", "n_heldout",
                  "n_train_combinations", "n_heldout_combinations", "n_classes", "n_unseen", "C",
                  "converged"),
        "per_class": ("layer", "pair", "label", "features", "width", "class", "f1", "low", "high",
                      "n_heldout", "n_train"),
        "given": ("layer", "pair", "label", "features", "width", "given", "gain", "low", "high",
                  "known", "with_features", "converged"),
        "contrasts": contrast_columns("layer", "pair", "label", "width", "features")}
    TOLD: ClassVar = {"quantity": HEADLINE}

    table: pd.DataFrame
    per_class: pd.DataFrame
    given: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def is_of_codes(self) -> bool:
        """Whether it tells of codes and their controls alone, in all dimensions."""
        return bool(set(self.table["features"]) <= set(FEATURE_STYLES)
                    and self.table["width"].isna().all())

    @property
    def missing_controls(self) -> tuple[str, ...]:
        """The controls that were left out on request; the residual stream is one of codes and of
        whole texts, and their bag of tokens one of the latter."""
        missing = super().missing_controls
        whole = "code" in set(self.table["features"]) or self.settings.get("whole_texts")
        return missing if whole else tuple(name for name in missing if name != CONTROLS[0])

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat() + shared_caveat(self.settings)
        unseen = self.table.groupby("label", sort=False)["n_unseen"].max()
        notes += [f"Label {label}: {n} held-out instances have a class that training lacks; "
                  "they count as errors." for label, n in unseen.items() if n > 0]
        unread = self.table[self.table["value"].isna()]
        still = unread["dimensions"] == 0
        notes += [f"No score for {features}, layer {layer}, {pair}: the features do not vary."
                  for features, layer, pair in distinct(unread[still], "features", "layer", "pair")]
        notes += [f"No score for {label}: it has a single outcome in training."
                  for (label,) in distinct(unread[~still], "label")]
        place = ["layer", "pair", "label", "features"]
        failed = pd.concat([of.loc[~of["converged"].astype(bool), place]
                            for of in (self.table, self.given)])
        notes += [f"The optimiser did not converge: {features}, label {label}, layer {layer}, "
                  f"{pair}." for layer, pair, label, features
                  in failed.drop_duplicates().itertuples(index=False)]
        if len(self.given):
            notes.append("What features add to the answer stands in the table given (given.csv).")
        if (self.table["n_heldout_combinations"] < 2).any():
            notes.append("A single held-out combination gives no interval.")
        return tuple(notes)

    def summary(self, metrics: Sequence[str] = HEADLINE) -> pd.DataFrame:
        """Return one row per layer, pair, label and metric, and `value [low, high]` by features.

        Of features other than codes, or reduced ones, a row per width and features, too, and a
        column per model: trained, untrained, and trained with shuffled labels.
        """
        table = self.table[self.table["metric"].isin(list(metrics))]
        place, column, digits = ("label", "metric", "pair", "layer"), "features", 3
        if not self.is_of_codes:
            widths = ("width",) if table["width"].notna().all() else ()
            table = parted(table)
            place, column, digits = ("pair", *widths, *place[:2], "features", "layer"), "model", 2
        return pd.DataFrame([
            where | {str(row[column]): with_interval(row, digits=digits)
                     for _, row in block.iterrows()}
            | {"chance": f"{block['chance'].iloc[0]:.{digits}f}"}
            for where, block in blocks(table, place)])

    def figure(self, metrics: Sequence[str] = HEADLINE) -> Figure:
        """Return the score per layer, a panel per label, metric, pair and width."""
        draw = decoding_figure if self.is_of_codes else scores_figure
        return draw(self.table[self.table["metric"].isin(list(metrics))],
                    missing=self.missing_controls)

    def figures(self) -> dict[str, Figure]:
        """Return the scores and, where there are some, the gains over what is given."""
        every = {FIGURE: self.figure()}
        return every | {"given.png": gains_figure(self.given)} if len(self.given) else every


def decoding_figure(table: pd.DataFrame, *, missing: Sequence[str] = ()) -> Figure:
    """Return the score per layer of a decoding table (`DecodingResult.table`).

    One panel per pair and per label and metric, the longer of the two lists across; markers are
    features, bars their 95 % intervals, the dashed line is the best constant answer. `missing`
    names the controls that were left out, which the figure then says.
    """
    check(len(table) > 0, "the decoding table holds no rows of the chosen metrics", ProbeError)
    kinds = distinct(table, "label", "metric")
    pairs = list(table["pair"].unique())
    layers = layers_in(table)
    feature_sets = features_in(table)
    kinds_across = len(kinds) > len(pairs)
    names = [f"{label}\n{METRIC_NAMES[metric]}" for label, metric in kinds]
    down, across = (pairs, names) if kinds_across else (names, pairs)
    width = max(0.45 * len(layers) + 0.9, _written(across))
    height = max(1.9, _written(down))
    with panels(len(down), len(across), width * len(across) + 2.2, height * len(down) + 0.5,
                sharex=True, sharey=True) as (figure, grid):
        for i, (label, metric) in enumerate(kinds):
            for j, pair in enumerate(pairs):
                row, column = (j, i) if kinds_across else (i, j)
                block = where(table, label=label, metric=metric, pair=pair)
                axes = grid[row, column]
                points_per_layer(axes, block, feature_sets, layers)
                chance = block.drop_duplicates("layer").sort_values("layer")["chance"].to_numpy()
                axes.step(np.r_[-0.5, np.arange(len(layers)) + 0.5], np.r_[chance[:1], chance],
                          color=GREY, linestyle="--", linewidth=1.0, zorder=1)
        grid[0, 0].set_ylim(-0.02, 1.02)
        name_panels(grid, across, down, "layer")
        figure.legend(handles=[
            *feature_handles(feature_sets),
            Line2D([], [], color=GREY, linestyle="--", label="best constant answer")],
            loc="outside right upper")
        if missing:
            figure.suptitle(f"without controls: {', '.join(missing)}", fontsize=9, color="#B00000")
    return figure


def _written(names: Sequence[str]) -> float:
    """Return the inches that the longest line of some headings takes."""
    return 0.085 * max(len(line) for name in names for line in name.split("\n"))


def scores_figure(table: pd.DataFrame, *, missing: Sequence[str] = ()) -> Figure:
    """Return the scores of `DecodingResult.table`: a row per pair and width, a column per label.

    Dashed is the best constant answer. `missing` names the controls that were left out.
    """
    return _grid(table, ("label", "metric"), lambda kind: f"{kind[0]}\n{METRIC_NAMES[kind[1]]}",
                 "value", ("chance", "best constant answer"),
                 f"without controls: {', '.join(missing)}" if missing else "")


def gains_figure(given: pd.DataFrame) -> Figure:
    """Return the gains of `DecodingResult.given`: a row per pair and width, a column per question.
    """
    return _grid(given.assign(none=0.0), ("label", "given"),
                 lambda kind: f"{kind[0]} given\n{kind[1]}", "gain", ("none", "no gain"),
                 "held-out log loss gained (nats)")


def _grid(
    table: pd.DataFrame, columns: tuple[str, str], titled: Any, value: str,
    line: tuple[str, str], title: str,
) -> Figure:
    check(len(table) > 0, "there are no rows of the chosen metrics to draw", ProbeError)
    table = parted(table.assign(width=table["width"].map(_plain)))
    kinds, places = distinct(table, *columns), distinct(table, "pair", "width")
    layers = layers_in(table)
    feature_sets = list(table["features"].unique())
    colors = {features: color for features, (color, _) in category_styles(feature_sets).items()}
    width = max(2.2, 0.09 * len(layers) * len(feature_sets) + 0.6)
    with panels(len(places), len(kinds), width * len(kinds) + 1.8, 2.1 * len(places) + 0.6, title,
                sharex=True) as (figure, grid):
        for row, (pair, width) in enumerate(places):
            for column, kind in enumerate(kinds):
                block = where(table, pair=pair, width=width,
                              **dict(zip(columns, kind, strict=True)))
                axes = grid[row, column]
                _draw(axes, block, layers, colors, value)
                axes.axhline(block[line[0]].iloc[0], color=GREY, linestyle="--", linewidth=1.0,
                             zorder=1)
        name_panels(grid, [titled(kind) for kind in kinds],
                    [f"{pair}\n{width} dimensions" for pair, width in places], "layer")
        handles = [Line2D([], [], color=color, marker="o", linestyle="", markersize=4, label=name)
                   for name, color in colors.items()]
        handles += [Line2D([], [], color=GREY, linestyle="", markersize=4, label=model,
                           **style)
                    for model, style in MODEL_STYLES.items() if model in set(table["model"])]
        handles += [Line2D([], [], color=GREY, linestyle="--", label=line[1])]
        figure.legend(handles=handles, loc="outside right upper")
    return figure


def _draw(
    axes: Axes, block: pd.DataFrame, layers: Sequence[int | str], colors: dict[Any, str], value: str
) -> None:
    step = 0.8 / max(len(colors), 1)
    for model, style in MODEL_STYLES.items():
        for i, (features, color) in enumerate(colors.items()):
            rows = where(block, model=model, features=features)
            x = np.array([layers.index(layer) for layer in rows["layer"]]) + step * (
                i - (len(colors) - 1) / 2)
            axes.errorbar(x, rows[value], yerr=reach(rows, value), color=color, linestyle="",
                          markersize=3.5, elinewidth=0.8, **style)
    axes.set_xticks(range(len(layers)), map(str, layers))
    axes.set_xlim(-0.5, len(layers) - 0.5)


def _plain(width: Any) -> object:
    return "all" if pd.isna(width) else int(width) if isinstance(width, float) else width
