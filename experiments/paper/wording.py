"""Sentences about runs: what each kind of attention scores, and whether models know their rules."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from latentcode.experiments.paper.reproduction import KIND_TITLES, Findings
from latentcode.runs import Run

NOTHING = "No run of these settings is finished."
LEAST = 0.90
"""A model knows its rules where it is right about each in at least this share of held-out
instances (`claims.yaml`)."""


def count(n: int, noun: str) -> str:
    """Return `one run` or `3 runs`."""
    return f"one {noun}" if n == 1 else f"{n:,} {noun}s"


def sentences(*parts: str) -> str:
    """Join those that say something, each once."""
    return " ".join(dict.fromkeys(filter(None, parts)))


def nothing(models: str) -> Findings:
    """Return the findings where no run of some models has finished."""
    return Findings(f"No run of {models} has finished.", {})


def of_kinds(table: pd.DataFrame, quantity: str) -> str:
    """Say what each kind of attention scores, on average or from the lowest to the highest cell.

    table  a row per run; runs of the same `member` differ in their seeds alone
    """
    if table.empty:
        return NOTHING
    kinds = []
    for kind, title in KIND_TITLES.items():
        rows = table[table["kind"] == kind]
        if rows.empty:
            continue
        means = rows.groupby("member")["value"].mean()
        values = dict.fromkeys(map(_written, (means.min(), means.max())))
        cells = f"{count(len(means), 'setting')}, " if len(means) > 1 else ""
        kinds.append(f"{title} {' to '.join(values)} ({cells}{count(len(rows), 'run')})")
    return f"{quantity}: {', '.join(kinds)}."


def _written(value: float) -> str:
    """Return three decimals, or of small numbers, such as losses, two digits."""
    return f"{value:.3f}" if abs(value) >= 0.02 else f"{value:.2g}"


def beside_ceiling(table: pd.DataFrame) -> str:
    """Say what the Bayes-optimal solver reaches on the tasks of a table; nothing without `ceiling`.
    """
    if table.empty or "ceiling" not in table:
        return ""
    values = dict.fromkeys(f"{value:.2f}" for value in
                           (table["ceiling"].min(), table["ceiling"].max()))
    return ("The Bayes-optimal solver reaches "
            f"{' to '.join(values)}, over all combinations of rules.")


def per_kind(table: pd.DataFrame, *, runs: bool = True) -> str:
    """Say the mean value of each kind, as in `softmax 0.28, HYLA 0.27 (one run of each)`.

    table  a row per run, with `kind` and `value`
    runs   whether their number is said
    """
    means = table.groupby("kind")["value"].mean()
    kinds = ", ".join(f"{title} {means[kind]:.2f}" for kind, title in KIND_TITLES.items()
                      if kind in means)
    return f"{kinds} ({n_runs(table)})" if runs else kinds


def n_runs(table: pd.DataFrame) -> str:
    """Say how many runs a table has of each kind, a row per run."""
    numbers = table.groupby("kind").size()
    several = len(numbers) > 1
    if numbers.nunique() == 1:
        n = int(numbers.iloc[0])
        return count(n, "run") + (" of each" if several else "")
    return ", ".join(f"{title} {count(int(numbers[kind]), 'run')}"
                     for kind, title in KIND_TITLES.items() if kind in numbers)


def least_known(run: Run) -> tuple[str, float]:
    """Return the rule that a model is least often right about on `ood`, and how often it is."""
    metrics = run.newest_metrics()
    of_rules = metrics[(metrics["split"] == "ood")
                       & metrics["metric"].str.startswith("feature_accuracy[")]
    least = of_rules.sort_values("mean", kind="stable").iloc[0]
    return str(least["metric"]).removeprefix("feature_accuracy[")[:-1], float(least["mean"])


def knows_rules(run: Run) -> bool:
    """Whether a model is right about each rule in at least `LEAST` of held-out instances."""
    return least_known(run)[1] >= LEAST


def caveat(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the note that some models do not know their rules, where it is so."""
    worst = {run.name: least_known(run) for run in runs if not knows_rules(run)}
    if not worst:
        return ()
    name = min(worst, key=lambda name: worst[name][1])
    rule, share = worst[name]
    return (f"{len(worst)} model(s) do not know every rule (least: {rule} right in {share:.2f} of "
            f"held-out instances, {name}): this says nothing about kinds of attention.",)


def titled(runs: Iterable[Run]) -> str:
    """Return what the title of a figure says where some models do not know their rules."""
    return "" if all(map(knows_rules, runs)) else "not all models know their rules"
