"""What each model of the demo is asked: what do its codes say, and what do they cause?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from latentcode.answers import CLASSES
from latentcode.codes import LatentCodes
from latentcode.config import LogicConfig
from latentcode.devices import available_cores
from latentcode.errors import ProbeError
from latentcode.experiments.evidence.rules import difference, together
from latentcode.experiments.studies.operation.criteria import WHERE, met
from latentcode.experiments.studies.operation.places import SOURCES, Place, sanity
from latentcode.models.config import kind_of
from latentcode.probes.common.results import where, with_interval
from latentcode.probes.decoding.of_codes import decode_codes
from latentcode.probes.decoding.result import DecodingResult
from latentcode.probes.interventions import InterventionResult, Patch, intervene
from latentcode.progress import bar
from latentcode.runs import Run
from latentcode.subjects import subject
from latentcode.tasks import make_counterfactuals, make_task

Reading = Literal["fixed_query", "fixed_context"]
READINGS: dict[Reading, str] = {"fixed_query": "one query", "fixed_context": "one context"}
"""What all instances share while codes are read: the query, or the context (paper, 3.2)."""
CONTROLS = ("untrained", "shuffled", "chance")
"""Features that a code has to exceed before it is said to tell something."""
LABEL = "terms"
"""What probes look for: which terms the function has."""
TELLING = "operation+operands"
"""The source that tells operation from operands: both are others than the instance's."""
SOURCE_HAS: dict[str, str] = {
    TELLING: "another function, another query", "operands": "the same function, another query",
    "interchange": "another function, the same query", "unrelated": "nothing of the instance"}
OUTCOMES: dict[str, str] = dict(zip(CLASSES, (
    "its own", "source's function", "source's query", "source's answer", "other"), strict=True))
"""Whose answer an answer is, in words of fuzzy logic."""
AMONG, ROW, ALL, PAIR, CHECK = (
    "codes among the examples (layer 0)", "codes of the query's row (layer 0)",
    "all codes together", "code of query->query (all layers)", "codes, values and streams")
"""Places, as the page calls them."""
LEAST_COUNTED = 30
"""With fewer instances that count, rates say too little to be shown."""
BATCH = 125
"""Instances that are written to at once: with the study's number, these are its instances."""


@dataclass(frozen=True)
class Sizes:
    """How much is asked.

    n_probe      instances that a probe is fitted on, and that it is scored on
    n_projected  points of a projection
    n_written    instances drawn to be written to; those count that the model answers
    """

    n_probe: int
    n_projected: int
    n_written: int


@dataclass(frozen=True)
class Asked:
    """A model and its answers.

    name     attention kind, and where the model comes from
    run      the model's run
    heldout  reading -> codes of functions that were never trained on
    decoded  reading -> how well a probe finds the terms in codes and in the controls
    written  what becomes of answers if codes are written; None where fewer than two count
    """

    name: str
    run: Run
    heldout: Mapping[Reading, LatentCodes]
    decoded: Mapping[Reading, DecodingResult]
    written: InterventionResult | None

    @property
    def folder(self) -> str:
        """The name as one of files."""
        return self.name.replace(" ", "-")

    @property
    def n_counted(self) -> int:
        """How many instances `written` is about: the model answers them and their sources."""
        return 0 if self.written is None else int(self.written.settings["n_known"])

    @property
    def answers_enough(self) -> bool:
        """Whether so many count that rates are shown."""
        return self.n_counted >= LEAST_COUNTED

    def score(self, reading: Reading, features: str = "code") -> pd.Series:
        """Return the row of some features in the last layer: `value`, `low`, `high`, `chance`."""
        table = where(self.decoded[reading].table, features=features)
        return table.sort_values("layer").iloc[-1]

    def contrast(self, reading: Reading, against: str) -> pd.Series:
        """Return by how much the code of the last layer is above a control: `value`, `low`, `high`,
        over the same problems."""
        table = self.decoded[reading].contrasts.against(against, features="code")
        return table.sort_values("layer").iloc[-1]

    def nearest(self, reading: Reading) -> str:
        """Return the control that the code is least surely above."""
        return min(CONTROLS, key=lambda name: float(self.contrast(reading, name)["low"]))

    def tells(self, reading: Reading) -> bool:
        """Return whether the code of the last layer is above each of its controls."""
        return together(difference(name, pd.DataFrame([self.contrast(reading, name)]), 0.0,
                                   fewest=1) for name in CONTROLS) == "agrees"

    @property
    def counted(self) -> str:
        """The name, and how many instances count."""
        return f"{self.name} ({self.n_counted} problems)"

    def rate(self, place: str, outcome: str, source: str = TELLING) -> float:
        """Return the share of answers of a class (`CLASSES`), of a place of `places`."""
        assert self.written is not None
        rows = where(self.written.table, patch=source, metric=outcome, **self._at(place))
        return float(rows["value"].iloc[0])

    def brings(self, place: str, statement: str) -> bool:
        """Return whether a place meets a statement's criterion, of the study of operations."""
        assert self.written is not None
        table = self.written.contrasts.table.assign(task="logic", kind=self.name, run=self.name)
        return bool(where(met(table), statement=statement, **self._at(place))["met"].iloc[0])

    def rates(self) -> pd.DataFrame:
        """Return a row per place and source: the share of answers of each class, with intervals."""
        assert self.written is not None
        rows = []
        for place in places(self.run):
            for source, has in SOURCE_HAS.items():
                block = where(self.written.table, patch=source, **self._at(place))
                cells = {str(row.metric): with_interval(row) for row in block.itertuples()}
                rows.append({
                    "written": place, "its source has": has,
                    **{words: cells[name] for name, words in OUTCOMES.items()},
                    "n": int(block["n"].iloc[0])})
        return pd.DataFrame(rows)

    def _at(self, place: str) -> dict[str, str]:
        site, scope, layers = places(self.run)[place]
        return dict(zip(WHERE, (site, scope, ",".join(map(str, layers))), strict=True))


def ask(run: Run, origin: str, sizes: Sizes, device: str = "cpu") -> Asked:
    """Read the codes of a run in both ways, and write sources' codes into it.

    origin  what the model is called after its kind of attention, such as `trained here`
    """
    config, kind = run.config.task, kind_of(run.config.model)
    assert isinstance(config, LogicConfig)
    name = f"{kind} {origin}"
    heldout: dict[Reading, LatentCodes] = {}
    decoded: dict[Reading, DecodingResult] = {}
    for reading, words in READINGS.items():
        print(f"{name}: decoding codes with {words} for all", flush=True)
        of = subject(run, replace(config, inputs=reading), device=device)
        train, held = ((of.codes(split, n=sizes.n_probe, residuals=True),
                        of.codes(split, n=sizes.n_probe, untrained=True))
                       for split in ("train", "ood"))
        decoded[reading] = decode_codes(
            train[0], held[0], (LABEL,), untrained=(train[1], held[1]), n_jobs=available_cores(),
            progress=bar("fitting probes"))
        heldout[reading] = held[0]
    print(f"{name}: writing codes of other problems", flush=True)
    return Asked(name, run, heldout, decoded, _written(run, sizes.n_written, device))


def places(run: Run) -> dict[str, Place]:
    """Return the places that are written, by name."""
    every = tuple(range(run.config.model.n_layers))
    task = make_counterfactuals(make_task(run.config.task))
    return {AMONG: ("code", "examples", (0,)), ROW: ("code", "row", (0,)),
            ALL: ("code", "everything", every), PAIR: ("code", "pair", every),
            CHECK: sanity(task, len(every))}


def _written(run: Run, n: int, device: str) -> InterventionResult | None:
    interventions = [Patch(source, scope, layers, site)
                     for site, scope, layers in places(run).values() for source in SOURCES]
    try:
        return intervene(run, interventions=interventions, n=n, batch_size=BATCH, device=device,
                         progress=bar("writing codes back"))
    except ProbeError as error:  # too few are answered
        print(error)
        return None
