"""What is measured of every model, and where codes are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.errors import TooFewCountError
from latentcode.experiments.evidence.criteria import criteria
from latentcode.experiments.evidence.keeping import kept, key_of
from latentcode.experiments.paper.reproduction import Work
from latentcode.experiments.paper.runs import KnownRuns
from latentcode.experiments.paper.token_losses import token_losses
from latentcode.experiments.studies.operation.places import SOURCES, Place, sanity
from latentcode.files.storage import write_text
from latentcode.probes.decoding import DecodingResult, decode
from latentcode.probes.interventions import (
    Intervention,
    InterventionResult,
    intervene,
    intervene_model,
)
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.subjects import subject
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.text.counterfactuals import TextCounterfactuals
from latentcode.tasks.text.task import Text

CRITERIA = criteria("text")
"""They say themselves what was known when they were written."""
WIDTH = 128
"""Dimensions in which the residual stream is read."""
METRICS = ("accuracy", "balanced_accuracy", "macro_f1")


@dataclass(frozen=True)
class Measured:
    """What one model said.

    losses   loss by class of token (`token_losses`)
    decoded  probes on codes, with all controls
    streams  is the class of the answer in the residual stream of the query?
    moved    minimal pairs, of whose two answers the likelier counts; None where too few count
    written  a factorial of sources; None where too few count
    moved_from  a factorial of sources that copy from elsewhere; None where too few count
    """

    losses: pd.DataFrame
    decoded: DecodingResult
    streams: DecodingResult
    moved: InterventionResult | None
    written: InterventionResult | None
    moved_from: InterventionResult | None


def measure(run: Run, work: Path, n: int, n_probe: int, seed: int) -> Measured:
    """Measure a model; what was computed is kept in `work`, so that an interrupted study goes on.

    n        instances that are drawn for interventions
    n_probe  instances that probes are fitted on; half as many are scored
    """
    size = {"n_train": n_probe, "n_heldout": max(n_probe // 2, 1), "seed": seed}

    def keep(name: str, kind: Any, function: Callable[..., Any], **settings: Any) -> Any:
        key = key_of([run], {name: {key: str(value) for key, value in settings.items()}})
        print(run.path.parent.name, run.name, name, flush=True)
        folder = work / f"{name}-{run.name}-{key}"
        too_few = folder.with_name(f"{folder.name}-too_few.txt")
        if too_few.exists():
            return None
        try:
            return kept(folder, kind, partial(function, run, **settings, progress=bar(name)))
        except TooFewCountError as error:
            write_text(too_few, f"{error}\n")
            print(error, flush=True)
            return None

    def written(name: str, chosen: list[Place], writes: Sequence[str],
                function: Callable[..., InterventionResult] = intervene, **settings: Any) -> Any:
        return keep(name, InterventionResult, function, n=n, seed=seed, interventions=[
            Intervention(patch, scope, layers, site)
            for site, scope, layers in chosen for patch in writes], **settings)

    n_layers = run.config.model.n_layers
    return Measured(
        Work("paper", KnownRuns({}), work).table(run, token_losses),
        keep("probes", DecodingResult, decode, labels=varying(run),
             pairs=CRITERIA["pairs"], **size),
        keep("streams", DecodingResult, partial(decode, metrics=METRICS), labels=["answer"],
             features=["residual"], widths=WIDTH, **size),
        written("pairs", places(n_layers), ("interchange", "control"), factorial=False,
                among="answers"),
        written("factorial", factorial_places(run), SOURCES),
        written("elsewhere", [place for place in factorial_places(run) if place[1] != "pair"],
                SOURCES, from_elsewhere))


def from_elsewhere(run: Run, interventions: Sequence[Intervention], **settings: Any
                   ) -> InterventionResult:
    """Do codes say from where to copy? `intervene`, with sources that copy from elsewhere."""
    task = make_task(run.config.task)
    assert isinstance(task, Text)
    return intervene_model(
        run.load_model(), TextCounterfactuals(task, operation="elsewhere"), interventions,
        meta=subject(run, task).settings, **settings)


def varying(run: Run) -> list[str]:
    """Return the labels of the criteria that vary in the run's text."""
    offered = make_task(run.config.task).probe_labels
    return [label for label in CRITERIA["labels"] if label in offered]


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
