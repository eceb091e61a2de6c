"""What the study writes where, and what comes of it in a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.errors import ProbeError
from latentcode.experiments.studies.operation.criteria import WHERE
from latentcode.probes.interventions import InterventionResult, Patch, intervene
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import OTHERS, Counterfactuals

SOURCES = ("operation+operands", "operands", "interchange", "unrelated")
"""Sources with the rest of the instance, which are written at every place."""
RESTS = ("control", *(name for name in OTHERS if "rest" in name))
"""Sources that are written at the main places alone."""

Place = tuple[str, str, tuple[int, ...]]
"""Site, scope, layers."""


def sanity(task: Counterfactuals, n_layers: int) -> Place:
    """Return the place that must bring the source's answer: all that the answer can depend on.

    A matrix's response tokens are blank; the query of fuzzy logic holds its own input.
    """
    site = "code+value+residual" if "examples" in task.scopes else "code+value"
    return site, "everything", tuple(range(n_layers))


def main_places(task: Counterfactuals, n_layers: int) -> list[Place]:
    """Return the response's rows in the upper half, all codes, all values, and the sanity row."""
    every = tuple(range(n_layers))
    return [("code", "row", every[n_layers // 2:]), ("code", "everything", every),
            ("value", "everything", every), sanity(task, n_layers)]


def all_places(task: Counterfactuals, n_layers: int) -> list[Place]:
    """Return every place that the study writes at.

    Codes of a pair, of rows and of everything: layers singly, from the lowest up, from the upper
    half up, and all; values and codes of the examples where a task has them (residual streams of
    the examples that enter layer 0 are the examples themselves); values; residual streams of the
    response.
    """
    every = tuple(range(n_layers))
    singly = [(layer,) for layer in every]
    upward = [every[:layer + 1] for layer in every[1:]]
    sets = list(dict.fromkeys([*singly, *upward, every[n_layers // 2:]]))
    places: list[Place] = [("code", scope, every) for scope in ("pair", "pairs")
                           if scope in task.scopes]
    places += [("code", scope, layers) for scope in ("row", "everything") for layers in sets]
    places += [("value", "everything", layers)
               for layers in dict.fromkeys([*singly, every[n_layers // 2:], every])]
    places += [("residual", "row", (layer,)) for layer in every[1:]]
    if "feature" in task.scopes:
        places += [("code", "feature", every[n_layers // 2:]), ("code", "feature", every)]
    if "examples" in task.scopes:
        places += [("code", "examples", layers) for layers in (*singly, every)]
        places += [("value", "examples", layers) for layers in (*singly, every)]
        places += [("residual", "examples", (0,)), ("code+value", "everything", every)]
    return [*places, sanity(task, n_layers)]


def interventions(
    task: Counterfactuals, n_layers: int, places: Sequence[Place], rests: bool = True
) -> list[Patch]:
    """Return the sources' patches at some places; `rests`: those of `RESTS`, too."""
    def listed() -> Iterator[Patch]:
        main = main_places(task, n_layers)
        for site, scope, layers in places:
            here = SOURCES + (RESTS if rests and (site, scope, layers) in main else ())
            for name in here:
                yield Patch(name, scope, layers, site)
            if "permuted" not in task.lacking and site == "value":
                yield Patch("permuted", scope, layers, site)

    return list(dict.fromkeys(listed()))


def written(
    run: Run, *, n: int, batch_size: int, seed: int, progress: Progress | None = None
) -> InterventionResult:
    """Write all sources at all places of a run."""
    task, n_layers = make_counterfactuals(make_task(run.config.task)), run.config.model.n_layers
    return intervene(run, interventions=interventions(task, n_layers, all_places(task, n_layers)),
                     n=n, batch_size=batch_size, seed=seed, progress=progress)


def along(
    run: Run, *, step: int, n: int, batch_size: int, seed: int, progress: Progress | None = None
) -> dict[str, pd.DataFrame]:
    """Write the sources at the main places of a checkpoint: rates of the classes; none where too
    few instances count, as early in a training."""
    task, n_layers = make_counterfactuals(make_task(run.config.task)), run.config.model.n_layers
    try:
        found = intervene(
            run, step=step, n=n, batch_size=batch_size, seed=seed, progress=progress,
            interventions=interventions(task, n_layers, main_places(task, n_layers), rests=False))
    except ProbeError as error:
        print(error)
        return {"along": pd.DataFrame()}
    rates = found.table[found.table["metric"].isin(CLASSES)].rename(columns={"metric": "class"})
    return {"along": rates.assign(step=step, known=found.settings["n_known"])[
        ["step", "known", *WHERE, "patch", "class", "value", "low", "high", "n"]]}
