"""The problem that Intervene opens on can tell what arrived, and its random controls do not switch.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hand_built import operation_model
from selector import Selector

pytest.importorskip("streamlit")
from latentcode.app.data import benches
from latentcode.app.data.benches import OpenBench, open_bench, usual
from latentcode.app.data.catalog import find_entry
from latentcode.app.panels.patches import put
from latentcode.models.patched.sites import capture, run_patched
from latentcode.probes.interventions import Bench, Patch
from latentcode.probes.interventions.outcomes import Ask, answer_of


class Named:
    constituent = "rule"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> OpenBench:
    monkeypatch.setattr(benches, "OPENINGS", {})
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
def test_a_thread_finds_where_a_model_of_the_zoo_opens(
    name: str, patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benches, "OPENINGS", {})
    entry = find_entry(name, ())
    benches.find_opening(entry, "ood")
    (found,) = benches.OPENINGS.values()
    page = benches.open_bench(entry, "ood", 0)
    assert usual(page.bench) == patch
    assert page.opening(patch) is found
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


@pytest.fixture(scope="module")
def logic() -> OpenBench:
    return open_bench(find_entry("logic-hyla", ()), "ood", 0)


def test_a_mean_of_problems_is_written_to_every_code_of_a_place(logic: OpenBench) -> None:
    bench, rows = logic.bench, [3, 8, 11, 40]
    query, key = benches.position(logic, 5, "query->query")
    cells = benches.cells_at(logic, 5, 0, query, key)
    assert (query, key) == (31, 31)
    assert cells[benches.CONTEXT].queries == tuple(range(31))
    codes = benches.mean_codes_at(logic, cells[benches.CONTEXT], rows)
    assert len(codes) == 1 + benches.CONTROLS
    found = benches.answers_to(logic, 5, cells[benches.CONTEXT], codes)
    _, seen = capture(bench.model, bench.rows(rows).inputs, [("code", 0)])
    mean = seen["code", 0].mean(0)

    def put(live: torch.Tensor) -> torch.Tensor:
        return torch.cat([mean[:, :31], live[0, :, 31:]], 1)[None]

    logits = run_patched(bench.model, bench.rows([5]).inputs, {("code", 0): put})
    assert answer_of(found.outputs[0]) == pytest.approx(float(logits[0, -1, 0]), abs=1e-5)
    assert answer_of(found.outputs[0]) != answer_of(found.before)
    # Means over as many random problems: all others.
    assert len(np.unique(found.outputs[1:])) == benches.CONTROLS


def test_a_mean_code_has_as_many_random_ones_beside_it() -> None:
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(300, 4)) + np.array([2.0, 0.0, 0.0, 0.0])
    selected = np.arange(300) < 200
    found = benches.mean_code(codes, selected)[:, :, 0, 0].numpy()
    assert found[0] == pytest.approx(codes[selected].mean(0))
    apart = np.linalg.norm(found[1:] - codes.mean(0), axis=1)
    assert apart.max() < 0.4  # as means of 200 of these are
    assert len(np.unique(found[1:, 0])) == benches.CONTROLS
