"""The page of the idea shows a layer's output twice, and what one score changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_app import charts, component, text
from small_app import shown as shown_page
from streamlit.testing.v1 import AppTest

import latentcode as lc
from latentcode.app.pages.idea import changed_scores, equations
from latentcode.codes.instances import instances
from latentcode.models.config import ATTENTION_KINDS, with_kind
from latentcode.models.hypernetwork import two_ways
from latentcode.probes.interventions.bench.written import Cells, written

Open = Callable[..., AppTest]


@pytest.fixture
def shown(models: Path) -> Open:
    return lambda model, **query: shown_page("idea", model=f"{models.name}/{model}", **query)


def difference(app: AppTest) -> float:
    return float(app.metric[0].value)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "n_layers"), [("sraven", 2), ("logic", 1)])
def test_both_ways_are_equal(shown: Open, models: Path, model: str, n_layers: int) -> None:
    app = shown(model, query="3", layer="1")
    assert 0.0 <= difference(app) < 1e-12
    assert not app.error
    assert len(charts(app)) == 4
    run = lc.Run.open(models / model)
    task = lc.make_task(lc.make_task(run.config.task).probe_config)
    inputs = instances(task, "ood", [0]).inputs[0]
    seen = two_ways(run.load_model(), inputs, 1, 3)
    # The key that is shown first is the one whose network does most.
    key = int(seen.outputs.norm(dim=1).argmax())
    names = task.token_names
    assert f"**{names[3]} → {names[key]}**" in text(app)
    assert len(charts(app)["weights"].data) == n_layers
    axes, n = charts(app)["map of codes"].layout, len(names)  # every square lies within them
    assert axes.xaxis.range == axes.yaxis.range[::-1] == (-0.7, n - 0.3)
    bars = component(app, "handles")
    assert bars["values"] == bars["ghost"] == pytest.approx(seen.codes[key].tolist())


def test_scores_move_what_the_network_makes(shown: Open) -> None:
    app = shown("logic")
    assert "moved by" not in text(app)
    own = component(app, "handles")["values"]
    changed = shown("logic", score="1_0.87_3_-0.5")
    assert component(changed, "handles")["values"] == [own[0], 0.87, own[2], -0.5]
    assert component(changed, "handles")["ghost"] == own
    assert "moved by" in text(changed)
    # It is the pair's, whichever head the map shows.
    changed.selectbox("head").set_value(2).run()
    assert component(changed, "handles")["values"] == [own[0], 0.87, own[2], -0.5]
    next(b for b in changed.button if b.label == "Its own").click().run()
    assert component(changed, "handles")["values"] == own
    assert "moved by" not in text(changed)
    broken = shown("logic", score="much", query="1000", key="-1", instance="x")
    assert difference(broken) < 1e-12


def test_a_changed_score_moves_the_answer(shown: Open, models: Path) -> None:
    app = shown("logic", query="7", key="3", layer="1", score="0_0.9", change="this pair")
    own = np.array(component(app, "handles")["ghost"])
    config = lc.Run.open(models / "logic").config
    bench = lc.Bench.of_run(models / "logic", lc.make_task(config.task).probe_config, n=20)
    cells = Cells(1, (7,), (3,))
    code = torch.from_numpy(np.concatenate([[0.9], own[1:]]))[None, :, None, None]
    found = written(bench, 0, cells, code)
    said = next(m.value for m in app.markdown if m.value.startswith("The answer"))
    assert f"**{found.answer(0):.3f}**" in said
    assert any("This code is changed as above, in layer 1." in c.value
               and "of 16 give this answer." in c.value for c in app.caption)


def test_scores_of_a_url() -> None:
    own = np.array([0.1, -0.2, 0.3])
    assert changed_scores("1_0.87", own, 1.0).tolist() == [0.1, 0.87, 0.3]
    for wrong in (None, "", "much", "1", "1_x", "1_nan", "1_2", "3_0.5", "-1_0.5", "0_0.5_1"):
        assert changed_scores(wrong, own, 1.0).tolist() == own.tolist()


def test_equations_fit_the_kind() -> None:
    config = lc.preset("smoke", "logic").model
    written = {kind: equations(with_kind(config, kind)) for kind in ATTENTION_KINDS}
    assert "W_{qk}" in written["softmax"][1]
    assert written["softmax"] == written["linear"]
    assert "phi" in written["hyla"][1]
    assert "phi" not in written["hyla_linear"][1]
    assert "layer 3" in written["hyla_deep"][1]
    for usual, generated in written.values():
        assert usual.count("{") == usual.count("}")
        assert generated.count("{") == generated.count("}")
