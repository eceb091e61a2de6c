"""The outcome of measuring heads: tables, and a map of all heads for each metric.

Nothing here imports torch, as a saved result is opened without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check
from latentcode.figures.panels import heat_map, signed_norm
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import TableResult, where
from latentcode.probes.common.statistics import NONE, Contrasts, contrast_columns
from latentcode.probes.heads.clusters import CONTROLS, DIFFERENCE, NEAREST, TABLES, nearest_codes
from latentcode.tasks.pairs import Pair

GROUPS = 256
"""Groups of texts of which sums are kept, and which the bootstrap resamples: text i is in group
i mod 256, by itself where there are no more texts."""
SAMPLED = Pair("query->key", "a token of a text, and one up to it")

COLUMNS = ("layer", "head", "metric", "value", "low", "high", *CONTROLS, "n")
CONTRASTS = contrast_columns("layer", "head", "features")
EFFECTS = ("patch", "layer", "head", "quantity", "value", "low", "high", *CONTROLS, "against",
           *DIFFERENCE, "n", "n_clusters")
SETS = ("set", "how", "heads", "size", "effect", "low", "high", "sum", "interaction",
        "interaction_low", "interaction_high", "acts", *DIFFERENCE, "n", "n_clusters")
NETWORKS = ("clusters", "layer", "cluster", "part", "n", "norm", "participation_ratio", "apart",
            "apart_permuted")
SAYS = ("clusters", "layer", "cluster", "number", "text", "query_token", "key_token", "context",
        "rank", "token", "logit", "by_mean")
LABELS = ("text", "query_position", "key_position", "distance", "query_token", "key_token", "kind",
          "drawn", "context")
"""Of the table of codes, before a column per head, such as `2.11`."""

NAMES: Mapping[str, str] = {
    "distance": "distance (tokens)", "entropy": "entropy (nats)",
    "normalized_entropy": "entropy / largest", "direct_logit_attribution": "direct logits"}
"""Metrics as maps call them, where it is not their name."""
PATCHES: Mapping[str, str] = {
    "mean": "mean ablation ({})", "resample": "resample ablation ({})",
    "interchange z": "interchange of z ({})", "interchange code": "interchange of codes ({})"}
"""Names of effects, with what is measured."""
ABLATIONS, INTERCHANGES = tuple(PATCHES)[:2], tuple(PATCHES)[2:]
N_NAMED = 3
"""Heads of each metric that sentences and the summary name."""
ACROSS = 4
"""Maps beside each other."""


@dataclass(frozen=True, repr=False)
class HeadsResult(TableResult):
    """What each head attends to, what it causes, and which heads act together.

    The metrics are those of `latentcode.probes.heads.metrics`. Intervals are 95 %
    bootstrap intervals (percentiles), which resample texts (of more than 256, groups of texts).

    Attributes:
        heads: One row per layer, head and metric: `value`, its 95 % interval `low`, `high`, and the
            same metric of the heads of the same architecture with fresh weights on the same texts:
            `control`, their mean, and `control_low`, `control_high`, between which another such
            head lies with 95 %. `n` is how many queries (of the direct logit attribution, read
            positions) the value is a mean over.
        effects: One row per patch (mean, resample, interchange z or code; or `tells` with a label
            that is decoded), layer, head and quantity: `value`, that of the `control`, and the
            `difference`, paired over the same tokens or pairs of prompts, each with its interval.
            Of ablations, that of the control is where one random output matrix lies with 95 %, and
            that of the difference is beyond 0 where the head does more, or less, than such a one
            would (`latentcode.probes.heads.ablate` has the equation).
        sets: One row per set of heads: the `effect` of ablating them together, the `sum` of what
            each does alone, on texts that they were not searched on, the `interaction` and how they
            act; `difference` is from random sets as large.
        together: The two heads whose codes go together most, over pairs of a query and a key.
        quality: How good clusters of codes are, layer by layer and over `all`; `clusters`,
            `cluster_heads` and `examples` describe them.
        networks: The value network of each cluster's mean code; `says`: the tokens it promotes.
        nearest: The codes nearest to each cluster's mean code.
        codes: The pairs that were sampled: labels, and a column per head.
        settings: Everything else that determines the numbers; after an interruption `partial` names
            the parts that are not finished.
        contrasts: One row per layer, head and metric: the value less the mean of the control.
    """

    FORMAT = "latentcode.heads"
    SHOWS: ClassVar = "heads outside the interval of heads with fresh weights"
    COLUMNS: ClassVar = {
        "heads": COLUMNS, "effects": EFFECTS, "sets": SETS, **TABLES, "networks": NETWORKS,
        "says": SAYS, "nearest": NEAREST, "codes": LABELS, "contrasts": CONTRASTS}
    OPEN: ClassVar = ("codes",)
    BEST_OF: ClassVar = ("layer", "head")

    heads: pd.DataFrame
    effects: pd.DataFrame
    sets: pd.DataFrame
    together: pd.DataFrame
    quality: pd.DataFrame
    clusters: pd.DataFrame
    cluster_heads: pd.DataFrame
    examples: pd.DataFrame
    networks: pd.DataFrame
    says: pd.DataFrame
    nearest: pd.DataFrame
    codes: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def missing_controls(self) -> tuple[str, ...]:
        return () if "untrained" in self.settings["controls"] else ("untrained",)

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = [*self.settings["notes"], *self.controls_caveat()]
        if "partial" in self.settings:
            notes.insert(0, "The call was interrupted; not finished: "
                         f"{', '.join(self.settings['partial'])}.")
        if not self.missing_controls:
            n = self.heads[["layer", "head"]].drop_duplicates().shape[0]
            above = n * max(1 / 40, 1 / (n * self.settings["n_untrained"] + 1))
            notes.append(f"Of {n} heads that learned nothing, about {above:.1f} are expected "
                         "above the interval of the control in each metric.")
            if self.effects["patch"].isin(ABLATIONS).any():
                notes.append(f"Of {n} heads with random output matrices, at most about "
                             f"{n / 40:.1f} are expected above the control of an ablation in each "
                             "quantity. Its interval is of eight such matrices, and wide where "
                             "texts are few.")
        if (self.effects["patch"].isin(INTERCHANGES)).any() or len(self.sets):
            notes.append("Intervals of interchange and of sets are over texts, so that differences "
                         "of no size are apart from nothing, too: of pairs of heads with random "
                         "weights a good part is (experiments/results/earlier.md). Look at the "
                         "sizes.")
        n_texts = int(self.settings["n_texts"])
        n_groups = int(self.settings.get("n_groups", min(n_texts, GROUPS)))
        if n_groups < 2:
            notes.append("There is a single text, so that there are no intervals.")
        elif n_groups < min(n_texts, GROUPS):
            notes.append(f"{n_texts:,} texts count as {n_groups} in intervals: copies (texts of "
                         "the same tokens) and what is of one document or combination are one.")
        return tuple(notes)

    def said(self) -> list[str]:
        """Say which heads have the largest effects and metrics, and how many are above controls."""
        sentences = []
        for name, rows in _by_metric(self._effects()):
            above, below = (int((rows["outside"] == side).sum()) for side in (1, -1))
            counts = (f"; {above} of {len(rows)} heads surely above their control"
                      + (f" and {below} below" if below else "")
                      if rows["control"].notna().any() else "")
            sentences.append(f"{name}: largest {_largest(rows)}{counts}")
        interacting = self.sets[(self.sets["how"] != "random") & (self.sets["acts"] != "additive")]
        if len(interacting):
            first = interacting.sort_values("interaction", key=abs).iloc[-1]
            sentences.append(
                f"heads {first['heads']} are {first['acts']}: ablated together "
                f"{digits(first['effect'])}, one by one {digits(first['sum'])} in sum (interaction "
                f"{_with_interval(first, 'interaction', 'interaction_low', 'interaction_high')})")
        elif len(self.sets):
            sentences.append("no set of heads is more or less than the sum of its heads")
        for metric, rows in _by_metric(self.marked()):
            name = metric.replace("_", " ")
            if self.missing_controls:
                sentences.append(f"{name}: largest {_largest(rows)}")
                continue
            over, under = (int((rows["outside"] == side).sum()) for side in (1, -1))
            if over + under:
                most = f"largest {_largest(rows)}" if over else (
                    f"smallest {_largest(rows, ascending=True)}")
                first = rows.iloc[0]
                sentences.append(
                    f"{name}: {most}; {over} of {len(rows)} heads above and {under} below those of "
                    f"untrained models ({first['control_low']:.3f} to {first['control_high']:.3f})")
        if self.missing_controls:
            return [*sentences, self.contrasts.reason]
        return sentences or ["no head is outside the interval of untrained ones in any metric"]

    def summary(self) -> pd.DataFrame:
        """Return, per metric, the control, how many heads are outside it, and the largest."""
        rows = []
        for metric, block in _by_metric(self._drawn()):
            first = block.iloc[0]
            control = {} if self.missing_controls else {
                "control": f"{first['control']:.3f} [{first['control_low']:.3f}, "
                           f"{first['control_high']:.3f}]" if pd.notna(first["control"])
                           else "by head",
                "above": int((block["outside"] == 1).sum()),
                "below": int((block["outside"] == -1).sum())}
            rows.append({"metric": metric, **control, "largest": _largest(block)})
        return pd.DataFrame(rows)

    def marked(self) -> pd.DataFrame:
        """Return the table of heads with a column `outside`: 1 where a head is surely above the
        interval of untrained ones, -1 where it is below, else 0.

        The interval of its difference from their mean has to be beyond that of theirs: texts that
        raise a metric in all heads raise it in both.
        """
        apart = self.contrasts.table.rename(columns={"quantity": "metric"})
        both = self.heads.merge(apart, on=["layer", "head", "metric"], how="left",
                                suffixes=("", "_apart"))
        above = both["low_apart"] > both["control_high"] - both["control"]
        below = both["high_apart"] < both["control_low"] - both["control"]
        return self.heads.assign(outside=(above.astype(int) - below.astype(int)).to_numpy())

    def _effects(self) -> pd.DataFrame:
        """Return the first quantity of each effect, as a metric with the mark `outside`."""
        first = self.effects.groupby("patch", sort=False)["quantity"].transform("first")
        rows = self.effects[self.effects["quantity"] == first]
        names = [PATCHES.get(str(patch), f"{patch} ({{}})").format(quantity)
                 for patch, quantity in zip(rows["patch"], rows["quantity"], strict=True)]
        return rows.assign(metric=names, outside=(rows["difference_low"] > 0).astype(int)
                           - (rows["difference_high"] < 0).astype(int))

    def _drawn(self) -> pd.DataFrame:
        """Return what is drawn and summed up: metrics and effects, whose control is one by head."""
        metrics, effects = self.marked(), self._effects()
        if effects.empty:
            return metrics
        no_control = dict.fromkeys(CONTROLS, np.nan)
        return pd.concat([metrics, effects.assign(**no_control)[list(metrics)]], ignore_index=True)

    def nearest_codes(self, to: Any, **options: Any) -> pd.DataFrame:
        """Return the sampled pairs whose codes are nearest to a code.

        Args:
            to: The row of a pair of `codes`, or a code.
            options: Those of `latentcode.probes.heads.clusters.nearest_codes`.

        Raises:
            LatentCodeError: `ProbeError` where no codes were sampled.
        """
        return nearest_codes(self.sampled(), to, **options)

    def sampled(self) -> LatentCodes:
        """Return the sampled codes as a data set; `ProbeError` where there are none."""
        check(len(self.codes) > 0, "no codes were sampled; expected lc.heads(..., codes=5_000)",
              ProbeError)
        heads = [str(name) for name in self.codes if name not in LABELS]
        layers = tuple(dict.fromkeys(int(name.split(".")[0]) for name in heads))
        scores = self.codes[heads].to_numpy(np.float32)
        labels = self.codes[list(LABELS)].reset_index(drop=True)
        return LatentCodes(scores.reshape(len(scores), len(layers), 1, -1), labels, (SAMPLED,),
                           layers, {})

    def matrix(self, metric: str, column: str = "value") -> pd.DataFrame:
        """Return a metric of all heads, layers [L] by heads [H]."""
        rows = where(self.heads, metric=metric)
        check(len(rows) > 0, f"there is no metric {metric!r}; expected one of "
              f"{', '.join(self.heads['metric'].unique())}", ProbeError)
        return rows.pivot(index="layer", columns="head", values=column)

    def figure(self) -> Figure:
        """Return a map of layers and heads for each metric; dots mark heads outside the control."""
        marked = "" if self.missing_controls else (
            "; dots: outside 95 % of untrained heads" + (
                ", of effects apart from the control" if len(self.effects) else ""))
        table = self._drawn()
        metrics = dict(_by_metric(table))
        check(len(metrics) > 0, "there are no metrics to draw", ProbeError)
        across = min(ACROSS, len(metrics))
        down = math.ceil(len(metrics) / across)
        width = float(np.clip(0.14 * table["head"].nunique(), 1.6, 4.0)) + 0.9
        height = float(np.clip(0.14 * table["layer"].nunique(), 1.0, 4.0)) + 0.75
        with panels(down, across, width * across, height * down,
                    f"{self.settings['run']}{marked}") as (figure, grid):
            for axes in grid.flat[len(metrics):]:
                axes.set_axis_off()
            for axes, (metric, rows) in zip(grid.flat, metrics.items(), strict=False):
                matrix = rows.pivot(index="layer", columns="head", values="value")
                norm = signed_norm(np.nan_to_num(matrix.to_numpy()))
                drawn = heat_map(axes, matrix, norm, fontsize=6.0)
                outside = rows[rows["outside"] != 0]
                place = matrix.index.get_indexer(pd.Index(outside["layer"]))
                axes.plot(outside["head"], place, ".", color="white", markeredgecolor="black",
                          markeredgewidth=0.4, markersize=3.5)
                axes.set_title(NAMES.get(metric, metric.replace("_", " ")), fontsize=8.0)
                figure.colorbar(drawn, ax=axes, shrink=0.8)
            for axes in grid[:, 0]:
                axes.set_ylabel("layer")
            for axes in grid.flat[max(0, len(metrics) - across):len(metrics)]:
                axes.set_xlabel("head")  # the lowest of a column
        return figure


def _by_metric(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each metric that has values, in order of appearance."""
    for name, rows in table.groupby("metric", sort=False):
        if rows["value"].notna().any():
            yield str(name), rows


def _largest(rows: pd.DataFrame, ascending: bool = False) -> str:
    """Name the heads of the largest values, each with its interval; effects with their control."""
    rows = rows.sort_values("value", ascending=ascending).head(N_NAMED)
    return "; ".join(
        f"L{int(row['layer'])}H{int(row['head'])} {_with_interval(row, 'value', 'low', 'high')}"
        + (f" (control {_with_interval(row, *CONTROLS)})"
           if "difference" in row and pd.notna(row["control"]) else "")
        for _, row in rows.iterrows())


def _with_interval(row: pd.Series, *columns: str) -> str:
    value, low, high = (row[column] for column in columns)
    return digits(value) + (f" [{digits(low)}, {digits(high)}]" if pd.notna(low) else "")


def digits(value: float) -> str:
    """Return a number with two digits after the point or, where these would be zeros (one head of
    many does little), with its first two: 3.47, 0.05, 0.0012."""
    return f"{value:.2g}" if 0.0 < abs(value) < 0.01 else f"{value + 0.0:.2f}"  # no -0.00
