"""The outcome of interventions: rates with intervals, a table rule A x rule B, figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D

from latentcode.errors import ProbeError, check
from latentcode.figures.panels import heat_map
from latentcode.figures.style import GREY, PALETTE, Figure, style
from latentcode.metrics import CLASSES
from latentcode.probes.common.figures import reach
from latentcode.probes.common.results import TableResult
from latentcode.probes.common.statistics import (
    NONE,
    Contrasts,
    contrast_columns,
    mean_and_interval,
    paired_rates,
)

if TYPE_CHECKING:
    from latentcode.probes.interventions.patch import Added, Patch

PLACE: tuple[str, ...] = ("patch", "scope", "layers", "site", "alpha", "heads", "renormalized")
"""Columns that name an intervention."""
_MAPPED = {"interchange": "the minimal pair's",
           "control": "same constituents, fresh values (control)"}
"""Patches that are drawn as a map of scope x layers, and its heading."""
_RATES = {"flip": (PALETTE[0], "o"), "unchanged": (PALETTE[1], "s")}
COLOURS: dict[str, str] = dict(zip(
    CLASSES, (PALETTE[4], PALETTE[0], PALETTE[1], PALETTE[3], "#DDDDDD"), strict=True))
"""The colour of each class of answers."""
_ROW = 0.16
"""Inches per bar."""
_GAP = 0.6
"""Bars that would fit above each place."""


@dataclass(frozen=True, repr=False)
class InterventionResult(TableResult):
    """What became of the answers.

    table    one row per intervention and metric (`flip`, `unchanged`, ...): `value`, the mean over
             instances, its 95 % interval `low`, `high` clustered by combination (NaN for a single
             one), and the numbers of instances and combinations. An answer flips where it
             becomes the source's, which in a minimal pair does not tell operation from answer
    by_constituent  one row per intervention, constituent of the base (`base_label`) and of the
             source (`source_label`): instances, `flip` and `unchanged`
    classes  one row per intervention, constituents and class of answers (`CLASSES`): instances and
             `rate`; empty without a factorial of sources. For patches that put a source's
             activations in (`interchange` and those of `OTHERS`) the rates of `operation`,
             `operands` and `answer` are the interchange intervention accuracies of these variables;
             rates of ablations, noise and steering are not
    contrasts  one row per patch, class of answers, and other source's patch at the same place
             (`against`): the difference of the two rates over the instances that both count;
             without a factorial, of `flip`, against the controls alone
    settings everything else that determines the numbers; `n_counted` instances have two
             different answers, `n_known` of them the model answers rightly
    """

    FORMAT = "latentcode.interventions"
    SHOWS = "whose answer comes out, by what was patched and where"
    COLUMNS: ClassVar = {
        "table": (*PLACE, "metric", "value", "low", "high", "n", "n_combinations"),
        "by_constituent": (*PLACE, "base_label", "source_label", "n", "flip", "unchanged"),
        "classes": (*PLACE, "base_label", "source_label", "class", "n", "rate"),
        "contrasts": contrast_columns(*PLACE, "class")}
    BEST_OF: ClassVar = ("scope", "layers", "site", "alpha", "heads", "renormalized")
    TOLD: ClassVar = {"patch": ("operation+operands",),
                      "class": ("operation", "operands", "answer")}

    table: pd.DataFrame
    by_constituent: pd.DataFrame
    classes: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    def patches(self) -> list[Added]:
        """Return what was patched, to be run again; `ConfigError` for a function that is not
        registered."""
        # Here: opening a result needs no torch.
        from latentcode.probes.interventions.patch import from_plain

        return [from_plain(plain) for plain in self.settings["interventions"]]

    @property
    def title(self) -> str:
        return super().title if len(self.classes) else (
            f"{type(self).__name__}: how often answers flip to the source's, or are unchanged")

    @property
    def caveats(self) -> tuple[str, ...]:
        s = self.settings
        answers = "four" if s.get("factorial") else "two"
        notes = [f"{s['n_known']} of {s['n']} instances count: {s['n_counted']} have {answers} "
                 f"different answers, and in {s['n_known']} of these the unpatched model gives "
                 f"{'all four' if s.get('factorial') else 'both'}. Rates are over these alone."]
        if s["chance"] is not None:
            what = "is any given one of the four" if s.get("factorial") else "flips"
            notes.append(f"An answer drawn at random {what} in {s['chance']:.3f}.")
        return (*notes, *s.get("notes", ()))

    def summary(self, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Return one row per intervention, and `value [low, high]` by metric.

        metrics  default: the classes of a factorial; without one, `flip`, `unchanged`, `others` and
                 `moved`
        """
        if metrics is None:
            metrics = list(CLASSES) if len(self.classes) else ["flip", "unchanged", "others",
                                                               "moved"]
        rows: list[dict[str, Any]] = []
        for _, block in self.table.groupby(list(PLACE), sort=False, dropna=False):
            place = block.iloc[0]
            rates = {rate.metric: f"{rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}]"
                     for rate in block.itertuples()}
            rows.append({
                "patch": written(place), **place[["scope", "layers", "site"]],
                **{metric: rates[metric] for metric in metrics if metric in rates},
                "n": int(place["n"])})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Return the classes of answers (`class_figure`), or rates (`intervention_figure`)."""
        return class_figure(self.table) if len(self.classes) else intervention_figure(
            self.table, self.settings["chance"])

    def figures(self) -> dict[str, Figure]:
        """Return the rates and, where they are highest, those of each rule beside each other.

        Of a factorial the rates at which the source with another operation and other operands
        brings its own answer; else those at which answers flip to the minimal pair's.
        """
        patch, metric, metrics = (
            ("operation+operands", "answer", tuple(CLASSES)) if len(self.classes)
            else ("interchange", "flip", ("flip", "unchanged")))
        plain = self.table[
            (self.table["patch"] == patch) & (self.table["metric"] == metric)
            & (self.table["heads"] == "all") & (self.table["site"] == "code")
            & ~self.table["renormalized"]]
        rates = plain[plain["scope"] != "everything"].dropna(subset="value")
        if not len(rates):
            return super().figures()
        best = rates.sort_values("value", kind="stable").iloc[-1]
        place = {name: best[name] for name in ("patch", "scope", "layers", "site", "heads",
                                               "renormalized")}
        title = f"{patch}: {best['scope']}, layers {best['layers']}"
        return super().figures() | {
            f"{name}.png": matrix_figure(self.matrix(name, **place), f"{name} rate\n{title}")
            for name in metrics}

    def matrix(self, metric: str = "flip", **place: object) -> pd.DataFrame:
        """Return a metric as a table: constituents of bases down, of sources across.

        metric  `flip`, `unchanged` or one of the classes of a factorial
        place   columns that choose one intervention, such as patch="interchange", scope="row",
                layers="2,3"; instances of all that fit are pooled
        """
        rows = self.by_constituent
        if metric in CLASSES:
            rows = self.classes[self.classes["class"] == metric].rename(columns={"rate": metric})
        for column, value in place.items():
            rows = rows[rows[column] == value]
        rows = rows.assign(hits=rows[metric] * rows["n"])
        sums = rows.groupby(["base_label", "source_label"])[["hits", "n"]].sum()
        matrix = (sums["hits"] / sums["n"]).unstack()
        names = self.settings["constituents"]
        return matrix.reindex(index=[n for n in names if n in matrix.index],
                              columns=[n for n in names if n in matrix.columns])


def tables(
    instances: pd.DataFrame, patches: Sequence[Added], constituents: Sequence[str],
    n_bootstrap: int, seed: int,
) -> dict[str, Any]:
    """Return the tables and contrasts of the outcomes of single instances.

    instances  `intervention` (the number of one of the patches), `number`, which is that of the
               instance, `combination`, `base_label`, `source_label`, and one column per metric
    """
    labels = ["base_label", "source_label"]
    metrics = [name for name in instances
               if name not in ("intervention", "number", "combination", *labels)]
    classes = [name for name in CLASSES if name in metrics]
    rows = [patch.row() for patch in patches]
    places = pd.DataFrame(rows)
    blocks = [instances[instances["intervention"] == number] for number in range(len(patches))]
    rates: list[dict[str, Any]] = []
    contrasts: list[dict[str, Any]] = []
    for number, (patch, place) in enumerate(zip(patches, rows, strict=True)):
        block = blocks[number]
        means, low, high, n_clusters = mean_and_interval(
            block[metrics].to_numpy(), block["combination"].to_numpy(), n_bootstrap, seed)
        rates += [{**place, "metric": metric, "value": means[i], "low": low[i], "high": high[i],
                   "n": len(block), "n_combinations": n_clusters}
                  for i, metric in enumerate(metrics)]
        # Other sources at the same place; of a minimal pair, those that are controls alone.
        for other, beside in enumerate(patches):
            if (other == number or not patch.source or not beside.source
                    or _where(beside) != _where(patch)
                    or (not classes and (patch.control or not beside.control))):
                continue
            compared = classes or ["flip"]
            contrasts += [
                {**place, "class": name if classes else "", "quantity": "rate" if classes else name,
                 "against": rows[other]["patch"], **row}
                for name, row in zip(compared, paired_rates(
                    block, blocks[other], compared, n_bootstrap, seed), strict=True)]
    grouped = instances.groupby(["intervention", *labels])
    cells = grouped[metrics].mean().assign(n=grouped.size()).reset_index()
    for label in labels:
        cells[label] = np.array(constituents, dtype=object)[cells[label]]
    cells = places.loc[cells["intervention"]].reset_index(drop=True).join(cells)
    columns = {name: list(some) for name, some in InterventionResult.COLUMNS.items()}
    by_class = pd.DataFrame(columns=columns["classes"])
    if classes:  # cell by cell, each with all its classes
        by_class = cells.melt([*places, *labels, "n"], classes, "class", "rate", ignore_index=False)
        by_class = by_class.sort_index(kind="stable", ignore_index=True)
    return {"table": pd.DataFrame(rates, columns=columns["table"]),
            "by_constituent": cells[columns["by_constituent"]],
            "classes": by_class[columns["classes"]],
            "contrasts": Contrasts(
                pd.DataFrame(contrasts, columns=columns["contrasts"]))}


def _where(patch: Added) -> list[Patch]:
    """Return a patch without what it puts."""
    return [replace(part, value="", alpha=1.0) for part in patch.parts]


def intervention_figure(table: pd.DataFrame, chance: float | None) -> Figure:
    """Return the rates of an intervention table (`InterventionResult.table`).

    Left, where sources were written at several scopes or layers: maps of the rate at which answers
    flip, for the source's codes and below for the control's. Right: every other intervention, the
    rates at which answers flip to the source's and are unchanged, bars their 95 % intervals; the
    dashed line is the rate at which a random answer flips.
    """
    table = table[table["metric"].isin(_RATES)].reset_index(drop=True)
    check(len(table) > 0, "the table holds no rates to draw", ProbeError)
    plain = (table["site"].eq("code") & table["heads"].eq("all") & ~table["renormalized"]
             & table["alpha"].isna() & table["patch"].isin(_MAPPED))
    mapped = table[plain & table["metric"].eq("flip")]
    if len(mapped[["scope", "layers"]].drop_duplicates()) < 2:
        plain[:], mapped = False, mapped[:0]
    listed = table[~plain].assign(name=[name_of(row) for _, row in table[~plain].iterrows()])
    names = list(listed["name"].unique())
    scopes = list(mapped["scope"].unique())
    layers = sorted(mapped["layers"].unique(), key=_by_number)
    height = max(0.15 * len(names) + 1.0, 2 * (0.3 * len(scopes) + 1.1) if len(mapped) else 1.4)
    # Never narrower than the headings.
    widths = [max(0.55 * len(layers) + 1.4, 4.0)] * bool(len(mapped)) + [5.2] * bool(names)
    with style():
        figure = Figure(figsize=(sum(widths) + 0.4, height), layout="constrained")
        grid = figure.add_gridspec(1, len(widths), width_ratios=widths)
        for row, (patch, heading) in enumerate(_MAPPED.items() if len(mapped) else ()):
            axes = figure.add_subplot(grid[0, 0].subgridspec(2, 1)[row, 0])
            rates = mapped[mapped["patch"] == patch].pivot(
                index="scope", columns="layers", values="value")
            heat_map(axes, rates.reindex(index=scopes, columns=layers).rename(columns=in_short),
                     Normalize(0.0, 1.0), numbers=True)
            axes.set(xlabel="layers", title=f"flip rate: {heading}")
        if names:
            axes = figure.add_subplot(grid[0, -1])
            for metric, (color, marker) in _RATES.items():
                rows = listed[listed["metric"] == metric]
                axes.errorbar(rows["value"], rows["name"].map(names.index), xerr=reach(rows),
                              color=color, marker=marker, markersize=3.5, linestyle="",
                              elinewidth=1.0)
            axes.set_yticks(range(len(names)), names, fontsize=7)
            axes.set(xlim=(-0.03, 1.03), ylim=(len(names) - 0.4, -0.6), xlabel="rate")
            axes.legend(handles=[
                Line2D([], [], color=color, marker=marker, linestyle="", label=metric)
                for metric, (color, marker) in _RATES.items()],
                loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
            if chance is not None:
                axes.axvline(chance, color=GREY, linestyle="--", linewidth=1.0, zorder=1)
    return figure


def matrix_figure(matrix: pd.DataFrame, title: str) -> Figure:
    """Return a table of rates as a map: constituents of bases down, of sources across."""
    with style():
        height, width = (0.42 * n + 1.5 for n in matrix.shape)
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        heat_map(axes, matrix, Normalize(0.0, 1.0), numbers=True, rotation=90.0)
        axes.set(xlabel="source", ylabel="base", title=title)
    return figure


def class_figure(table: pd.DataFrame) -> Figure:
    """Return the rates of `CLASSES` as stacked bars (of `InterventionResult.table`).

    Left the sources' patches, one block per place, so that sources can be compared where they were
    written; right all the others. The numbers of instances stand at the right ends.
    """
    # Here: opening a result needs no torch.
    from latentcode.probes.interventions.patches import PATCHES

    table = table[table["metric"].isin(CLASSES)]
    check(len(table) > 0, "the table holds no classes of answers to draw", ProbeError)
    source = table["heads"].eq("all") & table["patch"].map(
        lambda name: name in PATCHES and bool(PATCHES[name].source))
    bars = [_bars(part) for part in (table[source], table[~source]) if len(part)]
    height = max(block["y"].iloc[-1] + 0.5 + _GAP for block in bars)
    with style():
        figure = Figure(figsize=(6.4 * len(bars), _ROW * height + 1.0), layout="constrained")
        for axes, block in zip(figure.subplots(1, len(bars), squeeze=False)[0], bars, strict=True):
            left = np.zeros(len(block))
            for name, colour in COLOURS.items():
                rates = block[name].fillna(0.0).to_numpy(dtype=np.float64)
                axes.barh(block["y"], rates, 0.85, left=left, color=colour, label=name)
                left += rates
            for y, n in zip(block["y"], block["n"], strict=True):
                axes.annotate(f"{n}", (1.01, y), va="center", fontsize=6)
            axes.set_yticks(block["y"], block["name"], fontsize=6.5)
            axes.set(xlim=(0.0, 1.08), ylim=(height, 0.0), xlabel="rate; at the end: instances")
            axes.set_xticks(np.linspace(0.0, 1.0, 6))
            axes.grid(axis="y", visible=False)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=len(CLASSES))
    return figure


def _bars(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per bar, place by place: `name`, `n`, `y` in bars, and the rates."""
    rows: list[dict[str, object]] = []
    keys = ["patch", "alpha", "heads", "renormalized"]
    for first, (_, block) in enumerate(table.groupby(["site", "scope", "layers"], sort=False), 1):
        for number, (_, rates) in enumerate(block.groupby(keys, sort=False, dropna=False)):
            row = rates.iloc[0]
            name = written(row) if number else f"{_place_of(row)}: {written(row)}"
            # A gap above every place.
            rows.append({"name": name, "n": int(row["n"]), "y": len(rows) + first * _GAP + 0.5,
                         **dict.fromkeys(CLASSES, np.nan),
                         **dict(zip(rates["metric"], rates["value"], strict=True))})
    return pd.DataFrame(rows)


def name_of(row: Mapping[str, Any] | pd.Series) -> str:
    """Return what was written, then where."""
    return f"{written(row)}: {_place_of(row)}"


def written(row: Mapping[str, Any] | pd.Series) -> str:
    """Return an intervention's patch with whatever is not the ordinary: `steer 2`."""
    alpha = "" if np.isnan(row["alpha"]) else f" {row['alpha']:g}"
    heads = "" if row["heads"] == "all" else f", heads {row['heads']}"
    return f"{row['patch']}{alpha}{heads}{', renormalized' if row['renormalized'] else ''}"


def _place_of(row: Mapping[str, Any] | pd.Series) -> str:
    site = "" if row["site"] == "code" else f", {row['site']}"
    return f"{row['scope']}, layers {in_short(row['layers'])}{site}"


def in_short(layers: str) -> str:
    """Return 3-6 for 3,4,5,6, and whatever has gaps, few layers or several parts as it is."""
    _, numbers = _by_number(layers)
    whole = len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]}-{numbers[-1]}" if whole and "+" not in layers else layers


def _by_number(layers: str) -> tuple[int, tuple[int, ...]]:
    """Return by what sets of layers are ordered: single ones first, in their order."""
    numbers = tuple(map(int, re.findall(r"\d+", layers)))
    return len(numbers), numbers
