"""What a result of a factorial shows: whose answers there were, by patch and place."""

from __future__ import annotations

import pandas as pd
import pytest

import latentcode as lc
from latentcode.metrics import CLASSES
from latentcode.probes.interventions import InterventionResult
from latentcode.probes.interventions.intervention import tables

PATCHES = {"interchange": "operation", "operands": "operands", "operation+operands": "answer",
           "zero_ablation": "else"}
"""What each patch brings in 30 instances of 40; the others stay."""


@pytest.fixture(scope="module")
def result() -> InterventionResult:
    patches = [lc.Patch(patch, scope, (2, 3))
               for scope in ("row", "everything") for patch in PATCHES]
    instances = pd.DataFrame([
        {"intervention": number, "number": i, "combination": i % 10, "base_label": 0,
         "source_label": 1 + i % 2, "flip": float(found == "operation"),
         "unchanged": float(found == "base"),
         **{name: float(found == name) for name in CLASSES}}
        for number, patch in enumerate(patches) for i in range(40)
        for found in ["base" if i < 10 else PATCHES[patch.named]]])
    settings = {"n": 50, "n_counted": 45, "n_known": 40, "chance": 0.125, "factorial": True,
                "constituents": ["sum", "+1", "-1"]}
    return InterventionResult(
        **tables(instances, patches, settings["constituents"], 100, 0), settings=settings)


def test_bars_of_the_classes_by_place(result: InterventionResult) -> None:
    sources, others = result.figure().axes
    assert len(sources.get_yticklabels()) == 6
    assert len(others.get_yticklabels()) == 2
    rates = dict(zip(CLASSES, ([bar.get_width() for bar in bars] for bars in sources.containers),
                     strict=True))
    assert rates["base"] == [0.25] * 6
    assert rates["answer"] == [0.0, 0.0, 0.75] * 2


def test_classes_rule_by_rule(result: InterventionResult) -> None:
    answers = result.matrix("answer", patch="operation+operands", scope="row")
    assert answers.index.tolist() == ["sum"]
    assert answers.columns.tolist() == ["+1", "-1"]
    assert answers.to_numpy().tolist() == [[0.75, 0.75]]
    assert list(result.summary().columns[-6:]) == [*CLASSES, "n"]
    assert "flip" not in " ".join((result.title, *result.caveats))
    assert "any given one of the four in 0.125" in result.caveats[1]
