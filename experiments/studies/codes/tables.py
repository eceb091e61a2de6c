"""The tables of the study: over the runs of a kind, and of every run; and those that are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from latentcode.config.reading import task_from_dict
from latentcode.experiments.evidence.found import Found, Tables
from latentcode.experiments.evidence.tables import fixed
from latentcode.models.config import kind_of
from latentcode.probes.alignment import align
from latentcode.probes.alignment.result import AlignmentResult
from latentcode.probes.interventions.figure import name_of
from latentcode.probes.interventions.result import PLACE
from latentcode.probes.similarity.result import ALL
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.tasks import make_counterfactuals, make_task


def aligned(runs: Sequence[Run], progress: Progress | None = None) -> AlignmentResult:
    """Align the first two runs of each kind: pairs of runs grow as the square of their number."""
    chosen: dict[str, list[Run]] = {}
    for run in runs:
        chosen.setdefault(kind_of(run.config.model), []).append(run)
    return align([run for same in chosen.values() for run in same[:2]], progress=progress)


def summarised(found: Found) -> dict[str, pd.DataFrame]:
    """Return the tables of the study, by name."""
    topography, alignment = (found.results[name][0][1] for name in ("topography", "alignment"))
    similar = found.joined("similarity", "concentration")
    caused = found.joined("interventions", "table")
    decoding = found.joined("decoding", "table")
    return {
        "runs": _described([run for runs in found.runs.values() for run in runs]),
        "decoding": _over_seeds(
            decoding, ["layer", "pair", "label", "features", "metric"], ["value", "chance"]),
        "decoding_per_run": _per_run(decoding),
        "concentration": _over_seeds(similar[similar["class"] == ALL], [
            "layer", "pair", "features", "measure"], ["value"]),
        "topography": topography.table.groupby(
            ["kind", "layer", "label", "features", "distance", "metric"],
            sort=False)["rho"].agg(["mean", "min", "max", "count"]).reset_index(),
        "topography_per_run": topography.table,
        "generalization": topography.correlation,
        "interventions": _over_seeds(
            pd.concat([best_head(table) for _, table in caused.groupby("run", sort=False)]),
            [*PLACE, "metric"], ["value", "n"]),
        "interventions_per_run": _per_run(caused),
        "alignment": alignment.summary()}


def _described(runs: Sequence[Run]) -> pd.DataFrame:
    rows = []
    for run in runs:
        task, latest = make_task(run.config.task), run.latest()
        rows.append({
            "run": run.name, "kind": kind_of(run.config.model), "step": run.checkpoints()[-1],
            **{f"{task.headline}, {split}": latest.loc[task.headline, split]
               for split in ("test", "ood") if split in latest}})
    return pd.DataFrame(rows)


def _per_run(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the columns that name a run, but for its name, which is the last."""
    columns = [name for name in table if name not in ("task", "kind", "run", "seed")]
    return table[[*columns, "run"]]


def best_head(table: pd.DataFrame) -> pd.DataFrame:
    """Return an intervention table with, of single heads, the one that flips most alone.

    Heads have no common order over runs, so the same head of two runs is not the same thing.
    """
    single = (table["heads"] != "all") & (table["metric"] == "flip")
    if not single.any():
        return table
    best = table[single].sort_values("value", kind="stable")["heads"].iloc[-1]
    chosen = table[(table["heads"] == "all") | (table["heads"] == best)]
    return chosen.assign(heads=chosen["heads"].where(chosen["heads"] == "all", "best one"))


def _over_seeds(table: pd.DataFrame, place: list[str], columns: list[str]) -> pd.DataFrame:
    """Return, per kind and place, the mean of columns over runs, and the range of the first."""
    grouped = table.groupby(["kind", *place], sort=False, dropna=False)
    means = grouped[columns].mean()
    first = grouped[columns[0]]
    means.insert(1, "min", first.min())
    means.insert(2, "max", first.max())
    means["n_runs"] = first.size()
    return means.reset_index()


def shown(tables: Tables) -> dict[str, Any]:
    """Return the tables that the page shows, labels or features across, and the notes of a task."""
    heads = tables["concentration"].pivot_table(
        index=["kind", "layer", "features"], columns="measure", values="value", sort=False)
    return {"notes": _notes, "three_digits": three_digits, "heads": heads.reset_index().round(2),
            "decoded": _decoded(tables["decoding"]), "distances": _distances(tables["topography"]),
            "caused": _caused(tables["interventions"], list(tables["runs"]["kind"].unique()))}


def _notes(task: Mapping[str, Any]) -> str:
    """Return what to be careful about where answers of a task, by its configuration, flip."""
    return " ".join(make_counterfactuals(make_task(task_from_dict(task))).notes)


def three_digits(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with decimals of three digits."""
    return table.map(lambda cell: f"{cell:.3g}" if isinstance(cell, float) and cell == cell
                     else cell)


def _decoded(decoding: pd.DataFrame) -> pd.DataFrame:
    """Return the headline scores of each kind, label and layer, features across."""
    headline = decoding[decoding["metric"].isin(["accuracy", "f1"])]
    place = ["kind", "label", "layer"]
    cells = headline.assign(score=_with_range(headline, "value"))
    table = _across(cells, place, "score")
    return table.assign(chance=cells.groupby(place, sort=False)["chance"].first().map(
        fixed).tolist())


def _distances(topography: pd.DataFrame) -> pd.DataFrame:
    """Return how distances of codes follow those of tasks, features across."""
    first = topography[topography["metric"] == topography["metric"].iloc[0]]
    return _across(first.assign(rho=_with_range(first, "mean")),
                   ["kind", "label", "distance", "layer"], "rho")


def _across(cells: pd.DataFrame, place: Sequence[str], value: str) -> pd.DataFrame:
    return cells.pivot_table(index=list(place), columns="features", values=value, aggfunc="first",
                             sort=False).reset_index()


def _caused(interventions: pd.DataFrame, kinds: Sequence[str]) -> pd.DataFrame:
    """Return the rates of `flip` and `unchanged`, a row per intervention, two columns per kind."""
    rates = interventions[interventions["metric"].isin(["flip", "unchanged"])]
    cells = rates.assign(rate=_with_range(rates, "value"),
                         what=[name_of(row) for row in rates.itertuples()])
    table = cells.pivot_table(index="what", columns=["kind", "metric"], values="rate",
                              aggfunc="first", sort=False)
    table.columns = pd.Index([": ".join(map(str, names)) for names in table.columns])
    return table.reindex(columns=[f"{kind}: {metric}" for kind in kinds
                                  for metric in ("flip", "unchanged")]).reset_index()


def _with_range(table: pd.DataFrame, column: str) -> list[str]:
    """Return a column's means, with the smallest and the largest where there are several runs."""
    several = table[{"value": "n_runs", "mean": "count"}[column]] > 1
    return [f"{fixed(mean)} ({fixed(low)} to {fixed(high)})" if more else fixed(mean)
            for mean, low, high, more in zip(
                table[column], table["min"], table["max"], several, strict=True)]
