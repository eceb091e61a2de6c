"""The tables of the study: of every run, over seeds, and where the criteria are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.config import to_dict
from latentcode.errors import ProbeError, check
from latentcode.experiments.studies.operation.criteria import CRITERIA, WHERE, answer_entering, met
from latentcode.experiments.studies.operation.places import sanity
from latentcode.models.config import kind_of
from latentcode.probes.common.results import where
from latentcode.probes.interventions import InterventionResult
from latentcode.runs import Run
from latentcode.tasks import make_counterfactuals, make_task

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
    comparisons    paired differences of the source `operation+operands` from the others
    statements     where the criteria are met (`criteria.met`)
    by_rules       SRAVEN: rates by the rules of instance and source, pooled over the runs of a kind
    directions     SRAVEN: rates of `operation` from sum to another rule, and to sum; over runs
    windows        fuzzy logic: rates with other windows
    along          rates at the main places along trainings
    """
    _check_runs(runs)
    check_sanity(runs, found)
    about = {run.name: described(run) for run in runs}
    rates = _of_runs({name: result.table for name, result in found.items()}, about)
    classes = rates[rates["metric"].isin(CLASSES)].rename(columns={"metric": "class"})
    comparisons = _of_runs({name: result.contrasts.table for name, result in found.items()}, about)
    comparisons = comparisons[comparisons["patch"] == "operation+operands"]
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
            ["task", "kind", *WHERE, "patch", "class"], sort=False)["value"].agg(
            ["mean", "min", "max", "count"]).reset_index(),
        "comparisons": comparisons.drop(columns=["patch", "quantity", "n_clusters"]),
        "statements": met(comparisons, answer_entering(scores)),
        "by_rules": _by_rules(found, about),
        "directions": _directions(found, about),
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
    rows = rows[(rows["patch"] == "operation+operands") & (rows["task"] == "sraven")]
    rows = rows.assign(hits=rows["rate"] * rows["n"])
    which = ["task", "kind", *WHERE, "base_label", "source_label", "class"]
    sums = rows.groupby(which, sort=False)[["hits", "n"]].sum()
    return sums.assign(rate=sums["hits"] / sums["n"]).drop(columns="hits").reset_index()


def _directions(
    found: Mapping[str, InterventionResult], about: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    """Sum is one of the two rules in every pair, mostly the source's: both directions apart."""
    rows = _of_runs({name: result.classes for name, result in found.items()}, about)
    rows = rows[(rows["task"] == "sraven") & (rows["class"] == "operation")
                & rows["patch"].isin(["operation+operands", "operands", "unrelated"])]
    rows = rows.assign(hits=rows["rate"] * rows["n"],
                       direction=rows["base_label"].map({"sum": "from sum"}).fillna("to sum"))
    place = ["task", "kind", *WHERE, "direction", "patch"]
    sums = rows.groupby([*place, "run"], sort=False)[["hits", "n"]].sum()
    sums["rate"] = sums["hits"] / sums["n"]
    over = sums.groupby(place, sort=False)["rate"].agg(["mean", "min", "max", "count"])
    return over.assign(n=sums.groupby(place, sort=False)["n"].sum()).reset_index()


def _check_runs(runs: Sequence[Run]) -> None:
    """Raise `ConfigError` for runs that tables could not tell apart, or should not pool."""
    names = [run.name for run in runs]
    check(len(set(names)) == len(names), f"the runs are called {', '.join(names)}; expected "
          "different names, by which tables tell them apart")
    kinds: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        config = {**to_dict(run.config.task), "split_seed": None}
        first = kinds.setdefault((run.config.task.name, kind_of(run.config.model)), config)
        check(config == first, f"{run.name} is of another {run.config.task.name} task than the "
              f"runs before it: {config}; expected {first}, as they are averaged")


def check_sanity(runs: Sequence[Run], found: Mapping[str, InterventionResult]) -> None:
    """Raise `ProbeError` unless all that an answer can depend on brings the source's answer."""
    for run in runs:
        task = make_counterfactuals(make_task(run.config.task))
        site, scope, layers = sanity(task, run.config.model.n_layers)
        whole = where(found[run.name].table, site=site, scope=scope, metric="answer",
                      layers=",".join(map(str, layers)), patch="operation+operands")
        rate = float(whole["value"].iloc[0])
        check(rate >= CRITERIA["sanity_least"], f"{site} of all layers bring the source's answer "
              f"in {rate:.4f} of {run.name}; expected at least {CRITERIA['sanity_least']}",
              ProbeError)


def _along(
    along: Mapping[tuple[str, int], InterventionResult], about: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    parts = [result.table[result.table["metric"].isin(CLASSES)].assign(**about[name], step=step,
                                                                     known=result.settings["n_known"])
             for (name, step), result in along.items()]
    if not parts:
        return pd.DataFrame()
    whole = pd.concat(parts, ignore_index=True).rename(columns={"metric": "class"})
    return whole[[*RUN, "step", "known", *WHERE, "patch", "class", "value", "low", "high", "n"]]
