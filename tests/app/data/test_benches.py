"""The problem that Intervene opens on can tell what arrived, and its random controls do not switch.
"""

from __future__ import annotations

import pytest
import torch
from hand_built import operation_model
from selector import Selector

pytest.importorskip("streamlit")
from latentcode.app.data.benches import OpenBench, open_bench, usual
from latentcode.app.data.catalog import find_entry
from latentcode.app.panels.patches import put
from latentcode.probes.interventions import Bench, Patch
from latentcode.probes.interventions.outcomes import Ask


class Named:
    constituent = "rule"


@pytest.fixture
def opened() -> OpenBench:
    pairs = Selector().sample("train", 40, torch.Generator().manual_seed(0))
    return OpenBench(Bench(operation_model(), Selector(), pairs.bases), Named(), "selector")


def test_it_opens_where_an_answer_can_tell(opened: OpenBench) -> None:
    patch = Patch("operation+operands", "row", (opened.bench.model.cfg.n_layers - 1,))
    found = opened.opening(patch)
    outcome = opened.outcome(Ask(patch, found.instance, found.target))
    random = outcome.drawn("random")
    assert found.quiet == (random["base"] + random["else"] == sum(random.values()))
    assert outcome.telling
    assert outcome.natural
    assert outcome.source_right
    assert len(set(outcome.candidates.values())) == 4
    assert opened.opening(patch) is found
    assert opened.telling(found.instance, 0, patch) == found.target


@pytest.mark.parametrize(("name", "patch"), [
    ("sraven-hyla", Patch("operation+operands", "context", (0, 1))),
    ("sraven-softmax", Patch("operation+operands", "within context", (2, 3), "value")),
    ("text-softmax", Patch("operation+operands", "response", (1,)))])
@pytest.mark.slow
def test_where_a_model_of_the_zoo_opens(name: str, patch: Patch) -> None:
    page = open_bench(find_entry(name, ()), "ood", 0)
    assert usual(page.bench) == patch
    found = page.opening(patch)
    outcome = page.outcome(Ask(patch, found.instance, found.target))
    assert outcome.telling
    assert found.quiet
    assert outcome.drawn("random")["operation"] == 0


def test_values_of_a_place_are_those_of_its_tokens() -> None:
    name = "interchange"
    assert put(name, ("value",), "context", [1]) == Patch(name, "within context", (1,), "value")
    assert put(name, ("value",), "row", [1]) == Patch(name, "everything", (1,), "value")
    assert put(name, ("residual",), "context", [1], [2]) == Patch(
        name, "context", (1,), "residual")
    clicked = {"queries": (3,), "keys": (1, 2)}
    assert put(name, ("code",), "everything", [0], [2], clicked) == Patch(
        name, "everything", (0,), heads=(2,), queries=(3,), keys=(1, 2))
    assert put(name, ("value",), "everything", [0], [], clicked) == Patch(
        name, "everything", (0,), "value", keys=(1, 2))
    assert put(name, ("z",), "context", [0], [2], clicked) == Patch(
        name, "everything", (0,), "z", heads=(2,), queries=(1, 2, 3))
    assert put(name, ("residual",), "context", [0], [], clicked) == Patch(
        name, "everything", (0,), "residual", queries=(1, 2, 3))
