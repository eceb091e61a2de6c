"""The outcome of interventions: rates with intervals, a table rule A x rule B, a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.figures.style import Figure
from latentcode.probes.common.bootstrap import mean_and_interval
from latentcode.probes.common.contrasts import (
    NONE,
    Contrasts,
    contrast_columns,
    paired_rates,
    table_of,
)
from latentcode.probes.common.results import TableResult
from latentcode.probes.interventions.class_figure import class_figure
from latentcode.probes.interventions.figure import intervention_figure, matrix_figure, written

if TYPE_CHECKING:
    from latentcode.probes.interventions.patch import Added, Patch

PLACE: tuple[str, ...] = ("patch", "scope", "layers", "site", "alpha", "heads", "renormalized")
"""Columns that name an intervention."""


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
        from latentcode.probes.interventions.listed import from_plain

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
                 "different answers, and the model gives all of these."]
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
        rows = []
        for key, block in self.table.groupby(list(PLACE), sort=False, dropna=False):
            assert isinstance(key, tuple)
            named: dict[str, Any] = dict(zip(PLACE, key, strict=True))
            row: dict[str, Any] = {"patch": written(named),
                                   **{k: named[k] for k in ("scope", "layers", "site")}}
            values = block.set_index("metric")
            for metric in metrics:
                if metric in values.index:
                    r = values.loc[metric]
                    row[metric] = f"{r.value:.3f} [{r.low:.3f}, {r.high:.3f}]"
            row["n"] = int(block["n"].iloc[0])
            rows.append(row)
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
    rows = [patch.row() for patch in patches]
    metrics = [c for c in instances.columns
               if c not in ("intervention", "number", "combination", "base_label", "source_label")]
    classes = [c for c in CLASSES if c in metrics]
    names = dict(enumerate(constituents))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in InterventionResult.COLUMNS}
    blocks = {number: instances[instances["intervention"] == number]
              for number in range(len(rows))}
    for number, place in enumerate(rows):
        block = blocks[number]
        means, low, high, n_clusters = mean_and_interval(
            block[metrics].to_numpy(), block["combination"].to_numpy(), n_bootstrap, seed)
        found["table"] += [
            {**place, "metric": metric, "value": means[i], "low": low[i], "high": high[i],
             "n": len(block), "n_combinations": n_clusters} for i, metric in enumerate(metrics)]
        for (base, source), cell in block.groupby(["base_label", "source_label"], sort=True):
            which = {**place, "base_label": names[int(str(base))],
                     "source_label": names[int(str(source))]}
            found["by_constituent"].append({
                **which, "n": len(cell), "flip": cell["flip"].mean(),
                "unchanged": cell["unchanged"].mean()})
            found["classes"] += [{**which, "class": name, "n": len(cell),
                                  "rate": cell[name].mean()} for name in classes]
        for other in _beside(number, patches, controls=not classes):
            asked = classes or ["flip"]
            found["contrasts"] += [
                {**place, "class": name if classes else "", "quantity": "rate" if classes else name,
                 "against": rows[other]["patch"], **row}
                for name, row in zip(asked, paired_rates(
                    block, blocks[other], asked, n_bootstrap, seed), strict=True)]
    of_all = table_of(found.pop("contrasts"), InterventionResult.COLUMNS["contrasts"])
    return {name: pd.DataFrame(rows_of, columns=list(InterventionResult.COLUMNS[name]))
            for name, rows_of in found.items()} | {"contrasts": of_all}


def _beside(number: int, patches: Sequence[Added], *, controls: bool) -> list[int]:
    """Return the other sources' patches at the place of a source's patch, by their numbers.

    controls  of a patch that is none those that are controls alone
    """
    def where(patch: Added) -> list[Patch]:
        return [replace(part, value="", alpha=1.0) for part in patch.parts]

    own = patches[number]
    if not own.source or (controls and own.control):
        return []
    return [other for other, patch in enumerate(patches) if other != number
            and patch.source and where(patch) == where(own) and (patch.control or not controls)]
