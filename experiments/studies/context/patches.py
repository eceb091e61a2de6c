"""What the study of the context patches, and whose answer came of each base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from latentcode.answers import CLASSES
from latentcode.experiments.evidence.criteria import criteria
from latentcode.probes.interventions import Patch
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
MEANS = ("class_mean", "class_mean_base", "class_mean_third", "class_mean_group")
STEPS = ("steer", "steer_third", "steer_random")
Layers = tuple[int, ...]


def layer_sets(n_layers: int) -> tuple[Layers, ...]:
    """Return each layer alone, those from the lowest up, all but the lowest, and the upper half."""
    every = tuple(range(n_layers))
    upward = [every[:last] for last in range(2, n_layers + 1)]
    return tuple(dict.fromkeys([*((layer,) for layer in every), *upward, every[1:],
                                every[n_layers // 2:]]))


def patches(task: Counterfactuals, n_layers: int) -> list[Patch]:
    """Return every patch of the study, each once."""
    every = tuple(range(n_layers))
    lower, upper = every[:max(1, n_layers // 2)], every[n_layers // 2:]
    ends = tuple(dict.fromkeys([every[:1], lower, upper, every]))
    controls = ("operands", "unrelated")

    def written() -> Iterator[Patch]:
        for place in task.places:
            for layers in layer_sets(n_layers):
                of_place = ANOTHER if place == "context" else ("interchange",)
                for source in (BOTH, *controls, *of_place):
                    yield Patch(source, place, layers)
            for layers in ends:
                yield Patch(BOTH, f"outside {place}", layers)
            for layers in dict.fromkeys([*((layer,) for layer in every), every[1:], upper, every]):
                for source in (BOTH, *(controls if place == "context" else ())):
                    yield Patch(source, f"within {place}", layers, "value")
        for layers in layer_sets(n_layers):
            for source in (BOTH, "unrelated"):
                yield Patch(source, "within context", layers)
        for layers in dict.fromkeys([*ends, every[1:]]):
            for source in MEANS:
                yield Patch(source, "context", layers)
        for layers in dict.fromkeys([lower, every]):
            for source in MEANS:
                yield Patch(f"{source}_pooled", "context", layers)
            for alpha in (1.0, 2.0):
                for source in STEPS:
                    yield Patch(source, "context", layers, alpha=alpha)
        for source in ("frozen", BOTH):
            yield Patch(source, "context", (0,), "residual")
        yield Patch(BOTH, "everything", every, "code+value" if "operands" in task.places
                           else "code+value+residual")

    return list(dict.fromkeys(written()))


def directions(task: Counterfactuals) -> dict[str, Counterfactuals]:
    """Return the bases and sources of each direction; fuzzy logic has one, called `both`."""
    if isinstance(task, SravenCounterfactuals):
        return {"to sum": task.between(source_labels=("sum",)),
                "from sum": task.between(base_labels=("sum",))}
    return {"both": task}


def measured(
    run: Run, *, n: int, seed: int, batch_size: int, progress: Progress | None = None
) -> dict[str, pd.DataFrame]:
    """Return `patched`, whose answer came: a row per direction, patch and base that counts.

    n  bases drawn in each direction. Columns: `direction`, `patch` (its place in `patches`),
    `number` and `combination` of the base, `base_label`, `source_label`, `class` (a row of
    `CLASSES`), and the same of every row: `drawn`, `counted` (with four different answers).
    """
    task, model = make_counterfactuals(make_task(run.config.task)), run.load_model()
    parts = []
    for direction, pairs in directions(task).items():
        found, counts = outcomes_of_model(
            model, pairs, patches(task, model.cfg.n_layers), n=n, seed=seed,
            n_reference=CONTEXT["reference_problems"], batch_size=batch_size, progress=progress)
        names = np.array(task.constituents)
        parts.append(pd.DataFrame({
            "direction": direction, "patch": found["intervention"].astype("int16"),
            "number": found["number"].astype("int32"),
            "combination": found["combination"].astype("int32"),
            "base_label": names[found["base_label"]], "source_label": names[found["source_label"]],
            "class": found[list(CLASSES)].to_numpy().argmax(1).astype("int8"),
            "drawn": n, "counted": counts["n_counted"], "known": counts["n_known"]}))
    return {"patched": pd.concat(parts, ignore_index=True)}
