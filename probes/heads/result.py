"""The outcome of looking at heads: a table and a map of all of them, metric by metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check
from latentcode.figures.heat_maps import heat_map, signed_norm
from latentcode.figures.style import Figure
from latentcode.probes.common.contrasts import NONE, Contrasts
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import TableResult, where
from latentcode.probes.heads.tables import (
    BEYOND,
    COLUMNS,
    CONTRASTS,
    GROUPS,
    LABELS,
    by_metric,
    outside,
)

NAMES: Mapping[str, str] = {
    "previous_token": "previous token", "duplicate_token": "duplicate token",
    "first_token": "first token", "distance": "distance (tokens)", "entropy": "entropy (nats)",
    "normalized_entropy": "entropy / largest", "direct_logit_attribution": "direct logits"}
"""Metrics as maps call them, where it is not their name."""
EFFECTS: Mapping[str, str] = {
    "mean": "mean ablation ({})", "resample": "resample ablation ({})",
    "interchange z": "interchange of z ({})", "interchange code": "interchange of codes ({})"}
"""What is said of a patch, with what is measured."""
KINDS, INTERCHANGES = tuple(EFFECTS)[:2], tuple(EFFECTS)[2:]
"""Patches that are ablations, and those that bring what a source has."""
SHOWN = 3
"""Heads of each metric in the summary."""
SMALL = 0.01
"""Below it two digits after the point say nothing."""
ACROSS = 4
"""Maps beside each other."""
SAID = 3
"""Heads that a sentence names."""


@dataclass(frozen=True, repr=False)
class HeadsResult(TableResult):
    """What each head attends to, and what it adds to the logit of the next token.

    heads      one row per layer, head and metric: `value`, its 95 % interval `low`, `high`, and the
               same metric of the heads of the same architecture with fresh weights on the same
               texts: `control`, their mean, and `control_low`, `control_high`, between which
               another such head lies with 95 %. `n` is how many queries (of the direct logit
               attribution, read positions) the value is a mean over
    contrasts  one row per layer, head and metric: the value less the mean of the control
    effects    one row per patch (mean, resample, interchange z or code; or what is told, `tells`
               with a label), layer, head and quantity:
               `value`, that of the `control`, and the `difference`, paired over the same tokens or
               pairs of prompts, each with its interval. Of ablations, that of the control is where
               one random output matrix lies with 95 %, and that of the difference is beyond 0 where
               the head does more, or less, than such a one would (`causal` has the equation)
    sets       one row per set of heads: the `effect` of ablating them together, the `sum` of what
               each does alone, on texts that they were not searched on, the `interaction` and how
               they act; `difference` is from random sets as large
    together   the two heads whose codes go together most, over pairs of a query and a key
    quality, clusters, cluster_heads, examples  clusters of codes, layer by layer and over `all`
    networks, says  the value network of each cluster's mean code, and which tokens it promotes
    nearest    the codes nearest to each cluster's mean code
    codes      the pairs that were sampled: labels, and a column per head
    settings   everything else that determines the numbers; after an interruption `partial` names
               the parts that are not finished

    The metrics are those of `latentcode.probes.heads.metrics` and `direct`. Other intervals are
    95 % bootstrap intervals (percentiles), which resample texts (of more than 256, groups of
    texts).
    """

    FORMAT = "latentcode.heads"
    SHOWS: ClassVar = "heads outside the interval of heads with fresh weights"
    COLUMNS: ClassVar = {"heads": COLUMNS, **BEYOND, "codes": LABELS, "contrasts": CONTRASTS}
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
            if self.effects["patch"].isin(KINDS).any():
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
        if self.missing_controls:
            return [*self._said_of_effects(), *self._said_of_sets(), *(
                f"{metric.replace('_', ' ')}: largest {_largest(rows)}"
                for metric, rows in by_metric(self.heads)), self.contrasts.reason]
        sentences = [*self._said_of_effects(), *self._said_of_sets()]
        for metric, rows in by_metric(self.marked()):
            over, under = (int((rows["outside"] == side).sum()) for side in (1, -1))
            if over + under == 0:
                continue
            first = rows.iloc[0]
            most = f"largest {_largest(rows)}" if over else (
                f"smallest {_largest(rows, ascending=True)}")
            sentences.append(
                f"{metric.replace('_', ' ')}: {most}; {over} of {len(rows)} heads above and "
                f"{under} below those of untrained models "
                f"({first['control_low']:.3f} to {first['control_high']:.3f})")
        return sentences or ["no head is outside the interval of untrained ones in any metric"]

    def summary(self) -> pd.DataFrame:
        """Return, per metric, the control, how many heads are outside it, and the largest."""
        rows = []
        for metric, block in by_metric(self._drawn()):
            first = block.iloc[0]
            largest = block.sort_values("value", ascending=False).head(SHOWN)
            of_control = (f"{first['control']:.3f} [{first['control_low']:.3f}, "
                          f"{first['control_high']:.3f}]" if first["control"] == first["control"]
                          else "by head")
            control = {} if self.missing_controls else {
                "control": of_control,
                "above": int((block["outside"] == 1).sum()),
                "below": int((block["outside"] == -1).sum())}
            rows.append({"metric": metric, **control, "largest": "; ".join(
                _named(row) for _, row in largest.iterrows())})
        return pd.DataFrame(rows)

    def marked(self) -> pd.DataFrame:
        """Return the table of heads with a column `outside`: 1 where a head is surely above the
        interval of untrained ones, -1 where it is below, else 0."""
        return self.heads.assign(outside=outside(self.heads, self.contrasts.table))

    def _drawn(self) -> pd.DataFrame:
        """Return what is drawn and summed up: metrics, and the first quantity of each effect, whose
        control has no number for all heads."""
        of_effects = []
        for patch, rows in self.effects.groupby("patch", sort=False):
            rows = where(rows, quantity=rows["quantity"].iloc[0])
            sure = ((rows["difference_low"] > 0).astype(int)
                    - (rows["difference_high"] < 0).astype(int))
            of_effects.append(rows.assign(
                metric=_effect(patch).format(rows["quantity"].iloc[0]), outside=sure,
                control=float("nan")))
        metrics = self.marked()
        return pd.concat([metrics, *(rows[list(metrics)] for rows in of_effects if len(metrics))],
                         ignore_index=True) if of_effects else metrics

    def _said_of_effects(self) -> list[str]:
        """Say which heads have the largest effects, and of how many they are above the control."""
        sentences = []
        for patch, rows in self.effects.groupby("patch", sort=False):
            rows = where(rows, quantity=rows["quantity"].iloc[0])
            what = _effect(patch).format(rows["quantity"].iloc[0])
            above, below = (int((rows["difference_low"] > 0).sum()),
                            int((rows["difference_high"] < 0).sum()))
            counted = (f"; {above} of {len(rows)} heads surely above their control"
                       + (f" and {below} below" if below else "")
                       if rows["control"].notna().any() else "")
            sentences.append(f"{what}: largest {_largest(rows)}{counted}")
        return sentences

    def _said_of_sets(self) -> list[str]:
        """Say which heads found on other texts act together, the strongest interaction first."""
        found = self.sets[(self.sets["how"] != "random") & (self.sets["acts"] != "additive")]
        if found.empty:
            return [] if self.sets.empty else [
                "no set of heads is more or less than the sum of its heads"]
        order = found["interaction"].abs().sort_values(ascending=False).index
        first = found.loc[order[0]]
        return [f"heads {first['heads']} are {first['acts']}: ablated together "
                f"{digits(first['effect'])}, one by one {digits(first['sum'])} in sum (interaction "
                f"{digits(first['interaction'])} [{digits(first['interaction_low'])}, "
                f"{digits(first['interaction_high'])}])"]

    def nearest_codes(self, to: Any, **options: Any) -> pd.DataFrame:
        """Return the sampled pairs whose codes are nearest to a code.

        to       the row of a pair of `codes`, or a code
        options  those of `latentcode.probes.heads.clusters.nearest_codes`; it has the errors, too

        `ProbeError` where no codes were sampled (`lc.heads(..., codes=5_000)`).
        """
        from latentcode.probes.heads.clusters import nearest_codes

        return nearest_codes(self.sampled(), to, **options)

    def sampled(self) -> LatentCodes:
        """Return the sampled codes as a data set; `ProbeError` where there are none."""
        check(len(self.codes) > 0, "no codes were sampled; expected lc.heads(..., codes=5_000)",
              ProbeError)
        return as_codes(self.codes)

    def matrix(self, metric: str, column: str = "value") -> pd.DataFrame:
        """Return a metric of all heads, layers [L] by heads [H]."""
        rows = where(self.heads, metric=metric)
        check(len(rows) > 0, f"there is no metric {metric!r}; expected one of "
              f"{', '.join(self.heads['metric'].unique())}", ProbeError)
        return rows.pivot(index="layer", columns="head", values=column)

    def figure(self) -> Figure:
        """Return a map of layers and heads for each metric."""
        marked = "" if self.missing_controls else (
            "; dots: outside 95 % of untrained heads" + (
                ", of effects apart from the control" if len(self.effects) else ""))
        return maps_figure(self._drawn(), NAMES, f"{self.settings['run']}{marked}")


def _largest(rows: pd.DataFrame, ascending: bool = False) -> str:
    """Name the `SAID` heads of the largest values, each with its interval and its control."""
    rows = rows.sort_values("value", ascending=ascending).head(SAID)
    effects = "difference_low" in rows  # the control of a metric is one for all heads
    return "; ".join(
        _named(row) + (f" (control {_with_ends(row, 'control')})"
                       if effects and pd.notna(row["control"]) else "")
        for _, row in rows.iterrows())


def _with_ends(row: pd.Series, column: str) -> str:
    low, high = row[f"{column}_low"], row[f"{column}_high"]
    interval = f" [{digits(low)}, {digits(high)}]" if pd.notna(low) else ""
    return f"{digits(row[column])}{interval}"


def _named(row: pd.Series) -> str:
    interval = "" if row["low"] != row["low"] else f" [{digits(row['low'])}, {digits(row['high'])}]"
    return f"L{int(row['layer'])}H{int(row['head'])} {digits(row['value'])}{interval}"


def digits(value: float) -> str:
    """Return a number with two digits after the point or, where these would be zeros (one head of
    many does little), with its first two: 3.47, 0.05, 0.0012."""
    return f"{value:.2g}" if 0.0 < abs(value) < SMALL else f"{value + 0.0:.2f}"  # no -0.00


def _effect(patch: object) -> str:
    return EFFECTS.get(str(patch), f"{patch} ({{}})")


def as_codes(table: pd.DataFrame) -> LatentCodes:
    """Return the codes of a table with a column for each head, such as `2.11`."""
    from latentcode.probes.heads.sampling import SAMPLED

    named = [str(name) for name in table if name not in LABELS]
    layers = tuple(dict.fromkeys(int(name.split(".")[0]) for name in named))
    scores = table[named].to_numpy(np.float32).reshape(len(table), len(layers), 1, -1)
    labels = table[list(LABELS)].reset_index(drop=True)
    return LatentCodes(scores, labels, (SAMPLED,), layers, {})


def maps_figure(table: pd.DataFrame, names: Mapping[str, str], title: str) -> Figure:
    """Return one map per metric; a dot marks heads outside the interval of the control.

    table  columns layer, head, metric, value and `outside`, which is 0 for those within
    names  of metrics in words
    """
    metrics = dict(by_metric(table))
    check(len(metrics) > 0, "there are no metrics to draw", ProbeError)
    across = min(ACROSS, len(metrics))
    down = math.ceil(len(metrics) / across)
    n_layers, n_heads = table["layer"].nunique(), table["head"].nunique()
    width = float(np.clip(0.14 * n_heads, 1.6, 4.0)) + 0.9
    height = float(np.clip(0.14 * n_layers, 1.0, 4.0)) + 0.75
    with panels(down, across, width * across, height * down, title) as (figure, grid):
        for axes in grid.flat[len(metrics):]:
            axes.set_axis_off()
        for axes, (metric, rows) in zip(grid.flat, metrics.items(), strict=False):
            matrix = rows.pivot(index="layer", columns="head", values="value")
            norm = signed_norm(np.nan_to_num(matrix.to_numpy()))
            drawn = heat_map(axes, matrix, norm, fontsize=6.0)
            outside = rows[rows["outside"] != 0]
            place = {layer: row for row, layer in enumerate(matrix.index)}
            axes.plot(outside["head"], [place[layer] for layer in outside["layer"]], ".",
                      color="white", markeredgecolor="black", markeredgewidth=0.4, markersize=3.5)
            axes.set_title(names.get(metric, metric.replace("_", " ")), fontsize=8.0)
            figure.colorbar(drawn, ax=axes, shrink=0.8)
        for axes in grid[:, 0]:
            axes.set_ylabel("layer")
        for axes in grid.flat[max(0, len(metrics) - across):len(metrics)]:  # the lowest of a column
            axes.set_xlabel("head")
    return figure
