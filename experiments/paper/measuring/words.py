"""Sentences about a table: what the runs that are there score."""

from __future__ import annotations

import pandas as pd

from latentcode.experiments.paper.reproduction import KIND_TITLES

NOTHING = "No run of these settings is finished."


def count(n: int, what: str) -> str:
    """Return `one run` or `3 runs`."""
    return f"one {what}" if n == 1 else f"{n:,} {what}s"


def of_kinds(table: pd.DataFrame, what: str) -> str:
    """Say what each kind of attention scores, on average or from the lowest to the highest cell.

    table  a row per run; runs of the same `member` differ in their seeds alone
    """
    if table.empty:
        return NOTHING
    said = []
    for kind, title in KIND_TITLES.items():
        own = table[table["kind"] == kind]
        if own.empty:
            continue
        means = own.groupby("member")["value"].mean()
        values = dict.fromkeys(map(_written, (means.min(), means.max())))
        cells = f"{count(len(means), 'setting')}, " if len(means) > 1 else ""
        said.append(f"{title} {' to '.join(values)} ({cells}{count(len(own), 'run')})")
    return f"{what}: {', '.join(said)}."


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


def sentences(*said: str) -> str:
    """Join those that say something, each once."""
    return " ".join(dict.fromkeys(filter(None, said)))
