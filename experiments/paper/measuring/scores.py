"""What do the runs of a figure score? One split and metric, with the figure's axes beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from latentcode.experiments.paper.claims import Claim, Setting
from latentcode.experiments.paper.measuring.sraven_instances import ceiling
from latentcode.experiments.paper.reproduction import KIND_TITLES, Work, final_metrics
from latentcode.experiments.paper.verdicts import evidence

METRIC = {"logic": "r2", "sraven": "accuracy"}
"""What each task is judged by."""
LEARNT = 0.5
"""Of R² or accuracy on `test`: a model below has not learnt its task."""
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
    table = final_metrics(work, settings, every)
    table = table[(table["split"] == split) & (table["metric"] == metric)].reset_index(drop=True)
    table = table.rename(columns={"name": "task"})
    table["instances"] = table["steps"] * table["batch_size"]
    if of_task and metric == "accuracy":
        table["ceiling"] = [
            ceiling(work, row["n_features"], row["n_values"], row["permuted"]).mean
            for row in table.to_dict("records")]
    return table.drop(columns="batch_size")


@dataclass(frozen=True)
class Learning:
    """What the models of a figure are, and how many of them have learnt their task.

    n_models    finished runs
    n_unlearnt  those that score less than `LEARNT` on combinations of training
    setting     what was taken of the grid of Table A3, as `of_grid` says it
    trained_on  updates and tasks, in words
    """

    preset: str
    n_models: int
    n_unlearnt: int
    setting: str
    trained_on: tuple[str, ...]

    @property
    def heading(self) -> str:
        """What stands above the figure; nothing where the models are published ones that learnt."""
        reduced = [] if self.preset == "paper" else [f"reduced models (preset {self.preset})"]
        return "; ".join([*reduced, *([f"{self._unlearnt} have not learnt the task"]
                                      if self.n_unlearnt else [])])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know of these runs."""
        unlearnt = (f"{self._unlearnt} have not learnt the task: they reach less than {LEARNT} on "
                    "fresh instances of the combinations of training.")
        return (self._setting, *self.trained_on, *([unlearnt] if self.n_unlearnt else []))

    @property
    def _setting(self) -> str:
        if self.preset != "paper":
            return (f"Reduced models and tasks (preset {self.preset}): the numbers do not compare "
                    "with the paper's, and say nothing about which kind of attention is better.")
        return self.setting

    @property
    def _unlearnt(self) -> str:
        return f"{self.n_unlearnt} of {self.n_models} models"


def learning(work: Work, settings: Iterable[Setting]) -> Learning:
    """How many models have learnt their task, by their score on combinations of training?"""
    settings = list(settings)
    table = final_metrics(work, settings, ["task.name"])
    table = table[(table["split"] == "test") & (table["metric"] == table["name"].map(METRIC))]
    return Learning(work.preset, len(table), int((table["value"] < LEARNT).sum()),
                    of_grid(work, settings), tuple(_trained_on(work, settings)))


def of_grid(work: Work, settings: Iterable[Setting]) -> str:
    """Say for how many rows, the members of each task, the best point of Table A3's grid counts."""
    settings = list(settings)
    rows = {(setting.task, member) for setting in settings for member in setting.grid.points()}
    chosen = {(row["task"], row["member"]) for row in work.known.selection(settings)}
    if not chosen:
        return "One setting for every row, where the paper takes the best of the grid of Table A3."
    return (f"For {len(chosen)} of {len(rows)} rows the best point of the grid of Table A3, chosen "
            "on `test`" + ("; one setting for the others." if chosen < rows else "."))


def _trained_on(work: Work, settings: Iterable[Setting]) -> Iterator[str]:
    """Say what the runs of each task were trained on, and for how long."""
    configs = [run.config for _, run in work.runs_of(settings)]
    for name, title in (("logic", "Fuzzy logic"), ("sraven", "SRAVEN")):
        own = [config for config in configs if config.task.name == name]
        if not own:
            continue
        tasks: list[Any] = [config.task for config in own]
        what = ([f"sequence length {_listed(task.n_examples for task in tasks)}",
                 f"held-out share {_listed(task.ood_fraction for task in tasks)}"]
                if name == "logic" else
                [f"M = {_listed(task.n_features for task in tasks)}",
                 f"K = {_listed(task.n_values for task in tasks)}",
                 f"held-out share {_listed(task.ood_fraction for task in tasks)}",
                 " and ".join(sorted({"permuted" if task.permuted else "not permuted"
                                      for task in tasks}))])
        yield (f"{title}: {', '.join(what)}; {_listed(config.training.steps for config in own)} "
               f"updates of {_listed(config.training.batch_size for config in own)} instances.")


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" if value < 1e5 else f"{value:.0f}"
                     for value in sorted(set(values)))


def no_kind_is_always_lowest(work: Work, claim: Claim) -> pd.DataFrame:
    """Has no kind the lowest mean loss on `train` in every cell? Evidence of an exact rule.

    A cell is a member of the setting but for the kind; those without all three kinds are left out.
    """
    table = final_metrics(work, [claim.setting])
    table = table[(table["split"] == "train") & (table["metric"] == "loss")]
    cells = table["member"].str.replace(r"kind=[a-z]+,?", "", regex=True)
    means = table.groupby([cells, "kind"])["value"].mean().unstack("kind")
    means = means.reindex(columns=list(KIND_TITLES)).dropna()
    if means.empty:
        return evidence([])
    lowest = means.idxmin(axis=1)
    return evidence([{"member": "no kind is lowest in every cell",
                      "value": float(lowest.nunique() > 1), "n": len(means)}])
