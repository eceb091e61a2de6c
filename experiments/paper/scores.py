"""What do the runs of a figure score? One split and metric, with the figure's axes beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from latentcode.experiments.paper.claims import Claim, Setting
from latentcode.experiments.paper.reproduction import KIND_TITLES, Work, final_metrics
from latentcode.experiments.paper.sraven_instances import ceiling

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
    table.insert(table.columns.get_loc("steps"), "instances",
                 table["steps"] * table["batch_size"])
    if of_task and metric == "accuracy":
        table["ceiling"] = [ceiling(work, int(row.n_features), int(row.n_values),
                                    bool(row.permuted)).mean for row in table.itertuples()]
    return table.drop(columns="batch_size")


@dataclass(frozen=True)
class Learning:
    """How many models of a figure have learnt their task."""

    preset: str
    n_models: int
    n_unlearnt: int

    @property
    def heading(self) -> str:
        """What stands above the figure; nothing where the models are published ones that learnt."""
        reduced = [] if self.preset == "paper" else [f"reduced models (preset {self.preset})"]
        return "; ".join([*reduced, *([f"{self._unlearnt} have not learnt the task"]
                                      if self.n_unlearnt else [])])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know of these runs."""
        setting = ("One point of the grid of Table A3 for every row, where the paper takes the "
                   "best of the grid." if self.preset == "paper" else
                   f"Reduced models and tasks (preset {self.preset}): the numbers do not compare "
                   "with the paper's, and say nothing about which kind of attention is better.")
        unlearnt = (f"{self._unlearnt} have not learnt the task: they reach less than {LEARNT} on "
                    "fresh instances of the combinations of training.")
        return (setting, *([unlearnt] if self.n_unlearnt else []))

    @property
    def _unlearnt(self) -> str:
        return f"{self.n_unlearnt} of {self.n_models} models"


def learning(work: Work, settings: Iterable[Setting]) -> Learning:
    """How many models have learnt their task, by their score on combinations of training?"""
    settings = list(settings)
    table = final_metrics(work, settings, ["task.name"])
    table = table[(table["split"] == "test") & (table["metric"] == table["name"].map(METRIC))]
    return Learning(work.preset, len(table), int((table["value"] < LEARNT).sum()))


def for_claims(work: Work, *ids: str, task: str | None = None) -> Work:
    """Return the work with some of its claims: those named, or those on a task."""
    return replace(work, claims=tuple(
        claim for claim in work.claims if claim.id in ids or claim.setting.task == task))


def no_kind_is_always_lowest(work: Work, claim: Claim) -> pd.DataFrame:
    """Has no kind the lowest mean loss on `train` in every cell? Evidence of an exact rule.

    A cell is a member of the setting but for the kind; those without all three kinds are left out.
    """
    from latentcode.experiments.paper.verdicts import evidence

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


__all__ = ["Learning", "for_claims", "learning", "no_kind_is_always_lowest", "scores"]
