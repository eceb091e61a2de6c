"""The page of the idea shows a layer's output twice, and what one score changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("streamlit")
from small_app import shown as shown_page
from streamlit.testing.v1 import AppTest

import latentcode as lc
from latentcode.app.pages.idea import MAP_KEY, equations
from latentcode.models.config import ATTENTION_KINDS
from latentcode.models.hypernetwork import two_ways

Open = Callable[..., AppTest]


@pytest.fixture
def shown(models: Path) -> Open:
    return lambda model, **query: shown_page("idea", model=f"{models.name}/{model}", **query)


def charts(app: AppTest) -> list[dict[str, object]]:
    assert not app.exception
    assert not app.error
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def difference(app: AppTest) -> float:
    return float(app.metric[0].value)


@pytest.mark.parametrize(("model", "n_layers"), [("sraven", 2), ("logic", 1)])
def test_both_ways_are_equal(shown: Open, models: Path, model: str, n_layers: int) -> None:
    app = shown(model, query="3", layer="1")
    assert 0.0 <= difference(app) < 1e-12
    assert len(charts(app)) == 5
    run = lc.Run.open(models / model)
    task = lc.make_task(lc.make_task(run.config.task).probe_config)
    from latentcode.codes.instances import instances

    inputs = instances(task, "ood", [0]).inputs[0]
    seen = two_ways(run.load_model(), inputs, 1, 3)
    # The key that is shown first is the one whose network does most.
    key = int(seen.outputs.norm(dim=1).argmax())
    names = task.token_names
    text = "\n".join(m.value for m in app.markdown)
    assert f"**{names[3]} → {names[key]}**" in text
    weights = charts(app)[3]["data"]
    assert isinstance(weights, list)
    assert len(weights) == n_layers
    slider = app.slider("score slider")
    head = int(seen.codes[key].abs().argmax())
    assert slider.value == pytest.approx(float(seen.codes[key, head]))
    assert slider.label == f"Score of head {head}"


def test_a_score_moves_what_the_network_makes(shown: Open) -> None:
    app = shown("logic")
    assert "moved by" not in "\n".join(m.value for m in app.markdown)
    app.slider("score slider").set_value(0.87).run()
    head = app.selectbox("head").value
    score = f"{head}_0.87"
    assert app.query_params["score"] in (score, [score])
    assert "moved by" in "\n".join(m.value for m in app.markdown)
    next(b for b in app.button if b.label == "Its own").click().run()
    assert "moved by" not in "\n".join(m.value for m in app.markdown)
    shared = shown("logic", score=score)
    assert shared.slider("score slider").value == 0.87
    # It was meant for this head, and no other.
    shared.selectbox("head").set_value((head + 1) % 4).run()
    assert shared.slider("score slider").value != 0.87
    assert "moved by" not in "\n".join(m.value for m in shared.markdown)
    broken = shown("logic", score="much", query="1000", key="-1", instance="x")
    assert difference(broken) < 1e-12


def test_equations_fit_the_kind() -> None:
    config = lc.preset("smoke", "logic").model
    from latentcode.models.config import with_kind

    written = {kind: equations(with_kind(config, kind)) for kind in ATTENTION_KINDS}
    assert "W_{qk}" in written["softmax"][1]
    assert written["softmax"] == written["linear"]
    assert "phi" in written["hyla"][1]
    assert "phi" not in written["hyla_linear"][1]
    assert "layer 3" in written["hyla_deep"][1]
    for usual, generated in written.values():
        for text in (usual, generated):
            assert text.count("{") == text.count("}")


def test_a_clicked_square_comes_into_the_url() -> None:
    def click() -> None:
        from latentcode.app.pages.idea import note_clicked

        note_clicked(3)

    test = AppTest.from_function(click)
    test.session_state[MAP_KEY] = {"selection": {"points": [{"customdata": {"0": 5}}]}}
    test.run()
    assert not test.exception
    assert (test.query_params["query"], test.query_params["key"]) == ("1", "2")
