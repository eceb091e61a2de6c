"""The outcome of a comparison of codes: cosine matrices, means, and heads that codes use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from latentcode.errors import ProbeError, check
from latentcode.figures.style import Figure
from latentcode.probes.common.contrasts import NONE, Contrasts, contrast_columns
from latentcode.probes.common.results import TableResult, blocks, where, with_interval
from latentcode.probes.similarity.figure import codes_figure, concentration_figure, cosine_figure
from latentcode.probes.similarity.measures import cluster_order

ALL = "(all)"
"""The class that stands for all instances."""


@dataclass(frozen=True, repr=False)
class SimilarityResult(TableResult):
    """How the codes of a label's values compare, and how many heads they use.

    cosines        one row per layer, pair, features, centring (`raw`, `centred`) and two classes
                   `row`, `column`: the cosine `value` of their mean points with its interval
    means          the mean point of each class, one row per component (the head, of a code)
    samples        some instances, likewise
    concentration  one row per layer, pair, features, class ("(all)" for all instances) and measure,
                   see `concentration`
    contrasts      one row per layer, pair, centring, two classes and features: their cosine less
                   the `largest other` of either of them, and of the code also less that of the
                   residual stream, of the untrained model, and of `shuffled` labels (a mean over
                   20 times that they are dealt anew, not the once of the table of cosines)
    settings       everything else that determines the numbers

    Features: `code`, `residual`, `untrained`, and `shuffled`, the code with labels of other
    instances. Intervals are 95 % bootstrap intervals (percentiles) clustered by combination.
    Resampled means are noisier than the means themselves and their cosines nearer to 0: of classes
    that are almost alike an interval can lie below its own cosine.
    """

    FORMAT = "latentcode.similarity"
    COLUMNS: ClassVar = {
        "cosines": ("layer", "pair", "label", "features", "centring", "row", "column", "value",
                    "low", "high"),
        "means": ("layer", "pair", "label", "features", "class", "component", "value", "n"),
        "samples": ("layer", "pair", "label", "features", "instance", "class", "component",
                    "value"),
        "concentration": ("layer", "pair", "label", "features", "class", "measure", "value", "low",
                          "high", "n", "n_combinations"),
        "contrasts": contrast_columns("layer", "pair", "label", "centring", "row", "column",
                                      "features")}
    BEST_OF: ClassVar = ("layer", "row", "column")
    TOLD: ClassVar = {"features": ("code",), "centring": ("centred",)}

    cosines: pd.DataFrame
    means: pd.DataFrame
    samples: pd.DataFrame
    concentration: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def title(self) -> str:
        return (f"SimilarityResult: heads that a code uses, and the most similar classes of label "
                f"{self.settings['label']!r}")

    @property
    def caveats(self) -> tuple[str, ...]:
        n = len(self.settings["classes"])
        notes = [f"Centred cosines of {n} unrelated classes are {-1.0 / (n - 1):.2f} on average, "
                 "not 0, because centred means add up to zero.", *self.controls_caveat()]
        whole = self.concentration[self.concentration["class"] == ALL]
        total = whole["n"].max()  # of the code, of which none is zero
        zero = whole[whole["n"] < total].drop_duplicates(["features", "layer", "pair"])
        notes += [f"The {row.features} of layer {row.layer}, {row.pair} is zero in {total - row.n} "
                  f"of {total} instances, of which there is no concentration."
                  for row in zero.itertuples()]
        return tuple(notes)

    def matrix(
        self, *, layer: int, pair: str, features: str = "code", centring: str = "centred"
    ) -> pd.DataFrame:
        """Return the cosines [class, class] of a layer, pair and features, in clustering order."""
        block = where(self.cosines, layer=layer, pair=pair, features=features, centring=centring)
        check(len(block) > 0, f"there are no {centring} cosines of features {features!r}, layer "
              f"{layer!r}, pair {pair!r}", ProbeError)
        frame = block.pivot(index="row", columns="column", values="value")
        names = frame.index[cluster_order(frame.to_numpy())]
        return frame.loc[names, names]

    def summary(self) -> pd.DataFrame:
        """Return, per layer, pair and features, measures of all codes and the closest classes."""
        rows = []
        whole = self.concentration[self.concentration["class"] == ALL]
        for place, block in blocks(whole, ("pair", "layer", "features")):
            measures = {str(r.measure): with_interval(r)
                        for r in block.itertuples()}
            rows.append(place | measures | {"closest classes": _closest(self.matrix(**place))})
        return pd.DataFrame(rows)

    def figure(self, *, pair: str | None = None, centring: str = "centred") -> Figure:
        """Return the cosine matrices, features down and layers across (Fig. 5E, A8C).

        All matrices have the order in which the code of the last layer clusters.
        """
        pair = self.first_pair(pair)
        last = max(self.settings["layers"])
        order = list(self.matrix(layer=last, pair=pair, centring=centring).index)
        block = where(self.cosines, pair=pair, centring=centring)
        return cosine_figure(block, order, f"{centring} cosine of mean points per "
                             f"{self.settings['label']}, {pair}")

    def codes_figure(self, *, pair: str | None = None, features: str = "code") -> Figure:
        """Return sampled points above and mean points per class below, per layer (A8A, B)."""
        pair = self.first_pair(pair)
        samples, means = (where(table, pair=pair, features=features)
                          for table in (self.samples, self.means))
        check(len(means) > 0, f"there are no points of features {features!r}, pair {pair!r}",
              ProbeError)
        return codes_figure(samples, means, f"{features}, {pair}", self.settings["classes"])

    def concentration_figure(self, *, pair: str | None = None) -> Figure:
        """Return the measures of concentration per layer, features side by side."""
        pair = self.first_pair(pair)
        return concentration_figure(where(self.concentration, pair=pair, **{"class": ALL}), pair)

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        named = {f"points_{features}.png": self.codes_figure(features=features)
                 for features in self.samples["features"].unique()}
        return super().figures() | named | {"concentration.png": self.concentration_figure()}


def _closest(matrix: pd.DataFrame) -> str:
    values = matrix.to_numpy(copy=True)
    values[np.tril_indices(len(values))] = np.nan
    if np.isnan(values).all():
        return "the mean does not vary"
    i, j = (int(k) for k in np.unravel_index(np.nanargmax(values), values.shape))
    return f"{matrix.index[i]} ~ {matrix.columns[j]} {values[i, j]:.2f}"
