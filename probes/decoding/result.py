"""The outcome of decoding: scores beside their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from latentcode.figures.style import FEATURE_STYLES, Figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.results import (
    CONTROLS,
    FIGURE,
    TableResult,
    blocks,
    distinct,
    with_interval,
)
from latentcode.probes.common.shared import shared_caveat
from latentcode.probes.decoding.features_figure import gains_figure, scores_figure
from latentcode.probes.decoding.figure import decoding_figure
from latentcode.probes.decoding.naming import parted

HEADLINE: tuple[str, ...] = ("accuracy", "f1")
"""The metric that is quoted first: accuracy of single-label, F1 of multi-label problems."""


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
               (`probes.decoding.bag`), the best constant answer (`chance`), and the same
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
