"""The tables of the study: of every run, over seeds, and which words are earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.studies.operation.words import WHERE, answer_entering, earned
from latentcode.models.config import kind_of
from latentcode.probes.interventions import InterventionResult
from latentcode.runs import Run

RUN = ("task", "kind", "run", "seed")
"""Columns that name a run."""


def combined(
    runs: Sequence[Run], found: Mapping[str, InterventionResult],
    along: Mapping[tuple[str, int], InterventionResult], scores: pd.DataFrame,
) -> dict[str, pd.DataFrame]:
    """Return the tables of a study, by name.

    scores  those of the study of rows, which say what is decoded from residual streams

    runs           every run, its checkpoint and how many instances count
    rates          a row per run, place, write and class
    over_seeds     the mean, smallest and largest of each over the runs of a kind
    comparisons    paired differences of the donor `operation+operands` from the others
    words          which words are earned (`words.earned`)
    by_rules       SRAVEN: rates by the rules of instance and donor, pooled over the runs of a kind
    windows        fuzzy logic: rates with other windows
    along          rates at the main places along trainings
    """
    about = {run.name: described(run) for run in runs}
    rates = _of_runs({name: result.table for name, result in found.items()}, about)
    classes = rates[rates["metric"].isin(CLASSES)].rename(columns={"metric": "class"})
    comparisons = _of_runs({name: result.comparisons for name, result in found.items()}, about)
    comparisons = comparisons[comparisons["write"] == "operation+operands"]
    windows = rates[rates["metric"].str.contains("@")]
    split = windows["metric"].str.split("@", expand=True)
    windows = windows.assign(**{"class": split[0], "window": split[1]}) if len(windows) else windows
    return {
        "runs": pd.DataFrame([
            {**about[run.name], "split seed": getattr(run.config.task, "split_seed", None),
             "step": run.checkpoints()[-1], "n": found[run.name].settings["n"],
             "counted": found[run.name].settings["n_counted"],
             "known": found[run.name].settings["n_known"]} for run in runs]),
        "rates": classes.drop(columns="n_combinations"),
        "over_seeds": classes.groupby(
            ["task", "kind", *WHERE, "write", "class"], sort=False)["value"].agg(
            ["mean", "min", "max", "count"]).reset_index(),
        "comparisons": comparisons.drop(columns=["write", "n_combinations"]),
        "words": earned(comparisons, answer_entering(scores)),
        "by_rules": _by_rules(found, about),
        "windows": windows.drop(columns=["metric", "n_combinations"]),
        "along": _along(along, about),
    }


def described(run: Run) -> dict[str, Any]:
    """Return the columns that name a run."""
    config = run.config
    return {"task": config.task.name, "kind": kind_of(config.model), "run": run.name,
            "seed": config.training.seed}


def _of_runs(
    tables: Mapping[str, pd.DataFrame], about: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    parts = [table.assign(**about[name]) for name, table in tables.items()]
    whole = pd.concat(parts, ignore_index=True).drop(columns=["alpha", "heads", "renormalized"])
    return whole[[*RUN, *(c for c in whole.columns if c not in RUN)]]


def _by_rules(
    found: Mapping[str, InterventionResult], about: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    rows = _of_runs({name: result.classes for name, result in found.items()}, about)
    # The terms of fuzzy logic are too many, with too few instances each.
    rows = rows[(rows["write"] == "operation+operands") & (rows["task"] == "sraven")]
    rows = rows.assign(hits=rows["rate"] * rows["n"])
    sums = rows.groupby(["task", "kind", *WHERE, "source", "target", "class"], sort=False)[
        ["hits", "n"]].sum()
    return sums.assign(rate=sums["hits"] / sums["n"]).drop(columns="hits").reset_index()


def _along(
    along: Mapping[tuple[str, int], InterventionResult], about: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    parts = [result.table[result.table["metric"].isin(CLASSES)].assign(**about[name], step=step,
                                                                     known=result.settings["n_known"])
             for (name, step), result in along.items()]
    if not parts:
        return pd.DataFrame()
    whole = pd.concat(parts, ignore_index=True).rename(columns={"metric": "class"})
    return whole[[*RUN, "step", "known", *WHERE, "write", "class", "value", "low", "high", "n"]]
