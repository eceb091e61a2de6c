"""The tables of the study: over the runs of a kind, and of every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from latentcode.models.config import kind_of
from latentcode.probes.alignment.result import AlignmentResult
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.interventions.result import PLACE
from latentcode.probes.similarity.result import ALL, SimilarityResult
from latentcode.probes.topography.result import TopographyResult
from latentcode.runs import Run
from latentcode.tasks import make_task


@dataclass(frozen=True)
class Results:
    """What was found, by the names of the runs."""

    decoded: Mapping[str, DecodingResult]
    similar: Mapping[str, SimilarityResult]
    caused: Mapping[str, InterventionResult]
    topography: TopographyResult
    alignment: AlignmentResult | None


def summarised(runs: Sequence[Run], found: Results) -> dict[str, pd.DataFrame]:
    """Return the tables of a study, by name."""
    decoding = {name: result.table for name, result in found.decoded.items()}
    caused = {name: result.table for name, result in found.caused.items()}
    tables = {
        "runs": _described(runs),
        "decoding": _over_seeds(
            decoding, runs, ["layer", "pair", "label", "features", "metric"], ["value", "chance"]),
        "decoding_per_run": _per_run(decoding),
        "concentration": _over_seeds(
            {name: _whole(result) for name, result in found.similar.items()}, runs,
            ["layer", "pair", "features", "measure"], ["value"]),
        "topography": found.topography.table.groupby(
            ["kind", "layer", "label", "features", "distance", "metric"],
            sort=False)["rho"].agg(["mean", "min", "max", "count"]).reset_index(),
        "topography_per_run": found.topography.table,
        "generalization": found.topography.correlation,
        "interventions": _over_seeds(
            {name: _best_head(table) for name, table in caused.items()}, runs,
            [*PLACE, "metric"], ["value", "n"]),
        "interventions_per_run": _per_run(caused)}
    if found.alignment is not None:
        tables["alignment"] = found.alignment.summary()
    return tables


def kinds_of(runs: Sequence[Run]) -> list[str]:
    """Return the attention kinds of some runs, each once."""
    return list(dict.fromkeys(kind_of(run.config.model) for run in runs))


def _described(runs: Sequence[Run]) -> pd.DataFrame:
    rows = []
    for run in runs:
        task, latest = make_task(run.config.task), run.latest()
        rows.append({
            "run": run.name, "kind": kind_of(run.config.model), "step": run.checkpoints()[-1],
            **{f"{task.headline}, {split}": latest.loc[task.headline, split]
               for split in ("test", "ood") if split in latest}})
    return pd.DataFrame(rows)


def _whole(result: SimilarityResult) -> pd.DataFrame:
    """Return the concentration of all instances of a run."""
    return result.concentration[result.concentration["class"] == ALL]


def _per_run(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.assign(run=name) for name, table in tables.items()],
                     ignore_index=True)


def _best_head(table: pd.DataFrame) -> pd.DataFrame:
    """Return an intervention table with, of single heads, the one that flips most alone.

    Heads have no common order over runs, so the same head of two runs is not the same thing.
    """
    single = (table["heads"] != "all") & (table["metric"] == "flip")
    if not single.any():
        return table
    best = table[single].sort_values("value", kind="stable")["heads"].iloc[-1]
    chosen = table[(table["heads"] == "all") | (table["heads"] == best)]
    return chosen.assign(heads=chosen["heads"].where(chosen["heads"] == "all", "best one"))


def _over_seeds(
    results: Mapping[str, pd.DataFrame], runs: Sequence[Run], place: list[str],
    columns: list[str],
) -> pd.DataFrame:
    """Return, per kind and place, the mean of columns over runs, and the range of the first."""
    frames = [table.assign(kind=kind_of(run.config.model))
              for run, table in zip(runs, results.values(), strict=True)]
    grouped = pd.concat(frames).groupby(["kind", *place], sort=False, dropna=False)
    table = grouped[columns].mean()
    first = grouped[columns[0]]
    table.insert(1, "min", first.min())
    table.insert(2, "max", first.max())
    table["n_runs"] = first.size()
    return table.reset_index()
