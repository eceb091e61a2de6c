"""What is measured of every model, and where codes are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from latentcode.errors import TooFewCountError
from latentcode.experiments.evidence.criteria import criteria
from latentcode.experiments.paper.token_losses import token_losses
from latentcode.experiments.studies.operation.places import SOURCES, Place, sanity
from latentcode.experiments.studies.operation.tables import check_sanity
from latentcode.probes.decoding import DecodingResult, decode
from latentcode.probes.interventions import (
    InterventionResult,
    Patch,
    intervene,
    intervene_model,
)
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.subjects import subject
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.text.counterfactuals import TextCounterfactuals
from latentcode.tasks.text.task import Text

CRITERIA = criteria("text")
"""They say themselves what was known when they were written."""
TABLES = ("table", "classes", "contrasts")
"""Those of `InterventionResult` that are kept."""


def losses(run: Run) -> dict[str, pd.DataFrame]:
    """Return the loss by class of token (`token_losses`)."""
    return {"losses": token_losses(run)}


def probes(run: Run, *, progress: Progress | None = None, **settings: Any) -> DecodingResult:
    """Return what codes tell of the labels of the criteria, with all controls: see `decode`."""
    return decode(run, labels=varying(run), pairs=CRITERIA["pairs"], progress=progress, **settings)


def varying(run: Run) -> list[str]:
    """Return the labels of the criteria that vary in the run's text."""
    offered = make_task(run.config.task).probe_labels
    return [label for label in CRITERIA["labels"] if label in offered]


def minimal_pairs(run: Run, *, progress: Progress | None = None, **settings: Any
                  ) -> dict[str, pd.DataFrame]:
    """Write minimal pairs, of whose two answers the likelier counts; see `measured`."""
    return measured(intervene, run, places(run.config.model.n_layers), ("interchange", "control"),
                    factorial=False, among="answers", progress=progress, **settings)


def factorial(run: Run, *, progress: Progress | None = None, **settings: Any
              ) -> dict[str, pd.DataFrame]:
    """Write a factorial of sources; see `measured`.

    `ProbeError` where codes and values of all layers do not bring the source's answer.
    """
    return measured(intervene, run, factorial_places(run), SOURCES, progress=progress, **settings)


def from_elsewhere(run: Run, *, progress: Progress | None = None, **settings: Any
                   ) -> dict[str, pd.DataFrame]:
    """Do codes say from where to copy? `factorial`, with sources that copy from elsewhere."""
    chosen = [place for place in factorial_places(run) if place[1] != "pair"]
    return measured(_elsewhere, run, chosen, SOURCES, progress=progress, **settings)


def _elsewhere(run: Run, interventions: Sequence[Patch], **settings: Any
               ) -> InterventionResult:
    task = make_task(run.config.task)
    assert isinstance(task, Text)
    return intervene_model(
        run.load_model(), TextCounterfactuals(task, operation="elsewhere"), interventions,
        meta=subject(run, task).settings, **settings)


def measured(
    function: Callable[..., InterventionResult], run: Run, chosen: Sequence[Place],
    sources: Sequence[str], **settings: Any,
) -> dict[str, pd.DataFrame]:
    """Return the tables of writing sources at places, and how many instances count (`counted`):
    none, and tables without rows, where they are too few."""
    try:
        found = function(run, interventions=[
            Patch(source, scope, layers, site)
            for site, scope, layers in chosen for source in sources], **settings)
    except TooFewCountError as error:
        print(error, flush=True)
        return {"counted": pd.DataFrame({"known": [0]}),
                **{name: pd.DataFrame(columns=list(InterventionResult.COLUMNS[name]))
                   for name in TABLES}}
    if sources == SOURCES:
        check_sanity([run], {run.name: found})
    return {"counted": pd.DataFrame({"known": [found.settings["n_known"]]}),
            **{name: found.tables()[name] for name in TABLES}}


def places(n_layers: int) -> list[Place]:
    """Return where minimal pairs are written: the pair's code, rows, all codes, all values and, as
    a positive control, the residual stream of the query that enters a layer."""
    every = tuple(range(n_layers))
    upper = every[n_layers // 2:]
    return list(dict.fromkeys([
        *(("code", "pair", (layer,)) for layer in every),
        *(("code", scope, layers) for scope in ("pair", "row", "everything")
          for layers in (upper, every)),
        ("value", "everything", upper), ("value", "everything", every),
        *(("residual", "row", (layer,)) for layer in every[1:])]))


def factorial_places(run: Run) -> list[Place]:
    """Return where the sources of a factorial are written: the places that are no single pairs, and
    codes with values of all layers, which must bring the source's answer."""
    n_layers = run.config.model.n_layers
    task = make_counterfactuals(make_task(run.config.task))
    whole = [place for place in places(n_layers) if place[1] != "pair" or len(place[2]) > 1]
    return [*whole, sanity(task, n_layers)]
