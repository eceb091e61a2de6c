"""What the study of the context patches, and whose answer came of each base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.evidence.criteria import criteria
from latentcode.probes.interventions import Patch
from latentcode.probes.interventions.listed import every_patch
from latentcode.probes.interventions.of_model import outcomes_of_model
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import Counterfactuals
from latentcode.tasks.sraven.counterfactuals import SravenCounterfactuals

CONTEXT = criteria("context")
"""The criteria, committed before the runs that decide."""
SOURCES: Mapping[str, str] = {
    "operation": "interchange", "mean": "class_mean", "mean_base": "class_mean_base",
    "mean_third": "class_mean_third",
    "mean_shuffled": "class_mean_group", "mean_pooled": "class_mean_pooled",
    "mean_base_pooled": "class_mean_base_pooled", "mean_third_pooled": "class_mean_third_pooled",
    "mean_shuffled_pooled": "class_mean_group_pooled", "frozen codes": "frozen"}
"""Sources of the criteria that `PATCHES` calls otherwise."""
BOTH = "operation+operands"
"""The source whose operation and operands both differ, so that they can be told apart."""
ANOTHER = ("operation+operands+rest", "operands+rest")
"""Other problems: with the source's rule, and with the base's."""


def planned(
    words: Sequence[Mapping[str, Any]], task: Counterfactuals, name: str, layers: Sequence[int]
) -> list[Patch]:
    """Return every patch of the study, each once.

    layers  those with attention
    words  those of `study.yaml` (`listed.every_patch`), some for the task of a `name` alone
    """
    return list(dict.fromkeys(
        patch for one in words if one.get("task", name) == name
        for patch in every_patch({key: value for key, value in one.items() if key != "task"},
                                 layers, task.places)))


def directions(task: Counterfactuals) -> dict[str, Counterfactuals]:
    """Return the bases and sources of each direction; fuzzy logic has one, called `both`."""
    if isinstance(task, SravenCounterfactuals):
        return {"to sum": task.between(source_labels=("sum",)),
                "from sum": task.between(base_labels=("sum",))}
    return {"both": task}


def measured(
    run: Run, *, patches: Sequence[Mapping[str, Any]], n: int, seed: int, batch_size: int,
    progress: Progress | None = None,
) -> dict[str, pd.DataFrame]:
    """Return `patched`, whose answer came: a row per direction, patch and base that counts.

    n  bases drawn in each direction. Columns: `direction`, `patch` (its place in `planned`),
    `number` and `combination` of the base, `base_label`, `source_label`, `class` (a row of
    `CLASSES`), and the same of every row of a direction: `drawn`, `counted` (with four different
    answers) and `known` (of these, the model gives all four).
    """
    task, model = make_counterfactuals(make_task(run.config.task)), run.load_model()
    plan, parts = planned(patches, task, run.config.task.name, range(model.cfg.n_layers)), []
    for direction, pairs in directions(task).items():
        found, counts = outcomes_of_model(
            model, pairs, plan, n=n, seed=seed, n_reference=CONTEXT["reference_problems"],
            batch_size=batch_size, progress=progress)
        names = np.array(task.constituents)
        parts.append(pd.DataFrame({
            "direction": direction, "patch": found["intervention"].astype("int16"),
            "number": found["number"].astype("int32"),
            "combination": found["combination"].astype("int32"),
            "base_label": names[found["base_label"]], "source_label": names[found["source_label"]],
            "class": found[list(CLASSES)].to_numpy().argmax(1).astype("int8"),
            "drawn": n, "counted": counts["n_counted"], "known": counts["n_known"]}))
    return {"patched": pd.concat(parts, ignore_index=True)}
