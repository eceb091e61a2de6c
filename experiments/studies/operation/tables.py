"""The tables of the study: of every run, over seeds, and where the criteria are met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.config import to_dict
from latentcode.errors import ProbeError, check
from latentcode.experiments.evidence.found import Found, naming
from latentcode.experiments.evidence.pages import ROOT
from latentcode.experiments.studies.operation.criteria import (
    BOTH,
    CRITERIA,
    WHERE,
    answer_entering,
    met,
)
from latentcode.experiments.studies.operation.places import sanity
from latentcode.models.config import kind_of
from latentcode.probes.common.results import where
from latentcode.probes.interventions import InterventionResult
from latentcode.runs import Run
from latentcode.tasks import make_counterfactuals, make_task

ROWS = ROOT / "experiments/results/rows/tables/scores.csv"
"""What the study of rows decoded from residual streams."""


def combined(found: Found) -> dict[str, pd.DataFrame]:
    """Return the tables of the study, by name.

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
    answered = found.results["written"]
    results = {run.name: result for (run,), result in answered
               if isinstance(result, InterventionResult)}
    runs = [run for (run,), _ in answered]
    _check_runs(runs)
    check_sanity(runs, results)
    rates, comparisons, by_labels = (
        found.joined("written", name).drop(columns=["alpha", "heads", "renormalized"])
        for name in ("table", "contrasts", "classes"))
    classes = rates[rates["metric"].isin(CLASSES)].rename(columns={"metric": "class"})
    comparisons = comparisons[comparisons["patch"] == BOTH]
    windows = rates[rates["metric"].str.contains("@")]
    split = windows["metric"].str.split("@", expand=True)
    windows = windows.assign(**{"class": split[0], "window": split[1]}) if len(windows) else windows
    # The terms of fuzzy logic are too many, with too few instances each.
    by_labels = by_labels[by_labels["task"] == "sraven"]
    return {
        "runs": _runs(runs, results),
        "rates": classes.drop(columns="n_combinations"),
        "over_seeds": classes.groupby(
            ["task", "kind", *WHERE, "patch", "class"], sort=False)["value"].agg(
            ["mean", "min", "max", "count"]).reset_index(),
        "comparisons": comparisons.drop(columns=["patch", "quantity", "n_clusters"]),
        "statements": met(comparisons, answer_entering(pd.read_csv(ROWS))),
        "by_rules": _by_rules(by_labels), "directions": _directions(by_labels),
        "windows": windows.drop(columns=["metric", "n_combinations"]),
        "along": found.joined("along", "along"),
    }


def _runs(runs: Sequence[Run], found: Mapping[str, InterventionResult]) -> pd.DataFrame:
    return pd.DataFrame([
        {**naming(run), "split seed": getattr(run.config.task, "split_seed", None),
         "step": run.checkpoints()[-1], "n": found[run.name].settings["n"],
         "counted": found[run.name].settings["n_counted"],
         "known": found[run.name].settings["n_known"]} for run in runs])


def _by_rules(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["patch"] == BOTH]
    rows = rows.assign(hits=rows["rate"] * rows["n"])
    which = ["task", "kind", *WHERE, "base_label", "source_label", "class"]
    sums = rows.groupby(which, sort=False)[["hits", "n"]].sum()
    return sums.assign(rate=sums["hits"] / sums["n"]).drop(columns="hits").reset_index()


def _directions(rows: pd.DataFrame) -> pd.DataFrame:
    """Sum is one of the two rules in every pair, mostly the source's: both directions apart."""
    rows = rows[(rows["class"] == "operation")
                & rows["patch"].isin([BOTH, "operands", "unrelated"])]
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
                      layers=",".join(map(str, layers)), patch=BOTH)
        rate = float(whole["value"].iloc[0])
        check(rate >= CRITERIA["sanity_least"], f"{site} of all layers bring the source's answer "
              f"in {rate:.4f} of {run.name}; expected at least {CRITERIA['sanity_least']}",
              ProbeError)
