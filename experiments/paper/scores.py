"""What do the runs of a figure score? One split and metric, with the figure's axes beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from latentcode.experiments.paper.claims import Setting
from latentcode.experiments.paper.reproduction import Work, final_metrics
from latentcode.experiments.paper.sraven_answers import ceiling

METRIC = {"logic": "r2", "sraven": "accuracy"}
"""What each task is judged by."""
LEARNT = 0.5
"""Of R² or accuracy on `test`: a model below has not learnt its task."""
ONE_SETTING = "One setting for every row, where the paper takes the best of the grid of Table A3."
LETTERS_PER_INCH = 12
"""Of the heading of a figure."""
GIVEN = ("task.name", "training.steps", "training.batch_size")
OF_INSTANCE = ("task.n_features", "task.n_values", "task.permuted")


def scores(
    work: Work, settings: Iterable[Setting], split: str, metric: str, fields: Sequence[str] = ()
) -> pd.DataFrame:
    """Return a metric of every run at its last update, a row each.

    fields  of the configuration, as columns: the axes of the figure

    `instances` is how many the run was trained on; accuracies on SRAVEN have a `ceiling`, that of
    the Bayes-optimal solver, beside them.
    """
    settings = list(settings)
    of_task = OF_INSTANCE if settings and settings[0].task == "sraven" else ()
    every = tuple(dict.fromkeys((*fields, *GIVEN, *of_task)))
    table = final_metrics(work, settings, split, metric, every).rename(columns={"name": "task"})
    table["instances"] = table["steps"] * table["batch_size"]
    if of_task and metric == "accuracy":
        table["ceiling"] = [
            ceiling(work, row["n_features"], row["n_values"], row["permuted"]).mean
            for row in table.to_dict("records")]
    return table.drop(columns="batch_size")


def learning(work: Work, settings: Iterable[Setting]) -> tuple[str, tuple[str, ...]]:
    """Return what stands above a figure, and its notes: what its models are, and how many of them
    have not learnt their task, by their score on combinations of training.

    Nothing stands above it where the models are published ones that learnt.
    """
    settings = list(settings)
    values = pd.concat([final_metrics(work, [setting], "test", METRIC[setting.task])
                        for setting in settings]).drop_duplicates("id")["value"]
    reduced, setting = [], ONE_SETTING
    if work.preset != "paper":
        reduced = [f"reduced models (preset {work.preset})"]
        setting = (f"Reduced models and tasks (preset {work.preset}): the numbers do not compare "
                   "with the paper's, and say nothing about which kind of attention is better.")
    notes = (setting, *_trained_on(work, settings))
    n_unlearnt = int((values < LEARNT).sum())
    if not n_unlearnt:
        return "; ".join(reduced), notes
    unlearnt = f"{n_unlearnt} of {len(values)} models have not learnt the task"
    return "; ".join([*reduced, unlearnt]), (*notes, (
        f"{unlearnt}: they reach less than {LEARNT} on fresh instances of the combinations of "
        "training."))


def _trained_on(work: Work, settings: Iterable[Setting]) -> Iterator[str]:
    """Say what the runs of each task were trained on, and for how long."""
    configs = [run.config for _, run in work.runs_of(settings)]
    for name, title in (("logic", "Fuzzy logic"), ("sraven", "SRAVEN")):
        trained = [config for config in configs if config.task.name == name]
        if not trained:
            continue
        tasks: list[Any] = [config.task for config in trained]
        words = ([f"sequence length {_listed(task.n_examples for task in tasks)}",
                  f"held-out share {_listed(task.ood_fraction for task in tasks)}"]
                 if name == "logic" else
                 [f"M = {_listed(task.n_features for task in tasks)}",
                  f"K = {_listed(task.n_values for task in tasks)}",
                  f"held-out share {_listed(task.ood_fraction for task in tasks)}",
                  " and ".join(sorted({"permuted" if task.permuted else "not permuted"
                                       for task in tasks}))])
        yield (f"{title}: {', '.join(words)}; "
               f"{_listed(config.training.steps for config in trained)} updates of "
               f"{_listed(config.training.batch_size for config in trained)} instances.")


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" if value < 1e5 else f"{value:.0f}"
                     for value in sorted(set(values)))
