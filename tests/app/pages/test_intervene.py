"""The bench page shows what the library says, and its state is in the URL."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("streamlit")
from small_app import shown as shown_page
from small_app import text
from streamlit.testing.v1 import AppTest

import latentcode as lc
from latentcode.app.charts.theme import reach
from latentcode.app.pages.intervene import read_numbers
from latentcode.probes.interventions import Bench, Writing

Open = Callable[..., AppTest]


@pytest.fixture
def shown(models: Path) -> Open:
    return lambda model, **query: shown_page("intervene", model=f"{models.name}/{model}", **query)


def bench_of(models: Path, name: str) -> Bench:
    run = lc.Run.open(models / name)
    task = lc.make_task(run.config.task).probe_config
    return Bench.of_run(run, n=4_096, task=task)


def test_the_page_shows_the_outcome(shown: Open, models: Path) -> None:
    bench = bench_of(models, "sraven")
    target = bench.targets(5, 1)[2]
    writing = Writing(5, target, 1, "donor", "row", (1,))
    app = shown("sraven", instance="5", which="1", target=target, scope="row", layers="1")
    outcome = bench.write(writing)
    assert f"##### {outcome.sentence()}" in text(app)
    assert "leave every bit of the output" in text(app)
    for note in outcome.caveats():
        assert note in text(app)
    charts = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    assert len(charts) == 5  # the answer, three controls, the code
    assert [bar["name"] for bar in charts[0]["data"]] == ["before", "after"]
    assert target in "".join(charts[0]["layout"]["xaxis"]["ticktext"])
    assert [chart["layout"]["yaxis"]["range"] for chart in charts[1:4]] == [[0, 1.06]] * 3
    assert outcome.whose() in text(app)
    assert not app.error


def test_whose_answer_it_is(shown: Open, models: Path) -> None:
    bench = bench_of(models, "sraven")
    target = next(t for t in bench.targets(5, 1) if t in bench.answers(5, 1))
    app = shown("sraven", instance="5", which="1", target=target, scope="row", layers="1",
                what="other rule and operands")
    outcome = bench.write(Writing(5, target, 1, "operation+operands", "row", (1,)))
    assert outcome.whose().startswith("Whose answer it is: ")
    assert outcome.whose() in text(app)
    assert f"differs in its rule (**{target}** in place of" in text(app)


def test_a_number_and_not_a_symbol(shown: Open, models: Path) -> None:
    bench = bench_of(models, "logic")
    target = bench.targets(2, 0)[0]
    app = shown("logic", instance="2", which="0", target=target)
    n_layers = bench.model.cfg.n_layers
    outcome = bench.write(Writing(2, target, 0, "donor", "everything", tuple(range(n_layers))))
    assert f"##### {outcome.sentence()}" in text(app)
    assert len(app.get("plotly_chart")) == 3


def test_another_problem(shown: Open) -> None:
    app = shown("sraven", instance="5")
    app.button[0].click().run()
    number = app.number_input[0].value
    assert number != 5
    assert app.query_params["instance"] in (str(number), [str(number)])
    app.number_input[0].set_value(7).run()
    assert app.query_params["instance"] in ("7", ["7"])
    text(app)


@pytest.mark.parametrize("what", ["other problem", "mean", "other rule and operands"])
def test_everything_can_be_written(shown: Open, what: str) -> None:
    app = shown("sraven", what=what)
    assert "##### The answer" in text(app)
    assert [n.label for n in app.number_input] == (
        ["Problem", "Number of the other problem"] if what == "other problem" else ["Problem"])


def test_sliders(shown: Open, models: Path) -> None:
    app = shown("sraven", what="by hand", scope="pair", layers="1")
    bench = bench_of(models, "sraven")
    own = bench.code(0)[1]
    n_heads = len(own)
    assert [s.value for s in app.slider] == pytest.approx(own, abs=0.006)
    app.slider[2].set_value(0.5).run()
    values = tuple(s.value for s in app.slider)
    assert values[2] == 0.5
    parts = str(app.query_params["numbers"]).strip("[]'").split("_")
    assert [float(part) for part in parts[1:]] == pytest.approx(list(values))
    target = app.selectbox("target").value
    outcome = bench.write(Writing(0, target, 0, "hand", "pair", (1,), numbers=values))
    assert f"##### {outcome.sentence()}" in text(app)
    # The same view by its URL, and from the beginning.
    again = shown("sraven", what="by hand", scope="pair", layers="1",
                  numbers="_".join(["set", *map(str, values)]))
    assert tuple(s.value for s in again.slider) == values
    next(b for b in again.button if b.label == "Reset").click().run()
    assert [s.value for s in again.slider] == pytest.approx(own, abs=0.006)
    times = shown("sraven", what="by hand", how="times")
    assert [s.value for s in times.slider] == [1.0] * n_heads
    assert "##### The answer stays" in text(times)


@pytest.mark.parametrize(("parameters", "message"), [
    ({"instance": "-3"}, "There is no instance '-3' here"),
    ({"target": "+7"}, "There is no target '+7' here"),
    ({"scope": "column"}, "There is no scope 'column' here"),
])
def test_a_url_that_asks_for_nothing(
    shown: Open, parameters: dict[str, str], message: str
) -> None:
    app = shown("sraven", **parameters)
    assert any(message in warning.value for warning in app.warning)
    assert "##### The answer" in text(app)


@pytest.mark.parametrize(("model", "message"), [
    ("codes", "holds codes without their model"), ("nothing", "does not exist")])
def test_what_has_no_model_is_a_message(shown: Open, model: str, message: str) -> None:
    app = shown(model)
    assert not app.exception
    assert message in app.error[0].value


def test_numbers_of_a_url() -> None:
    assert read_numbers("set_1_-2.5", "set", 2).tolist() == [1.0, -2.5]  # type: ignore[union-attr]
    for wrong in (None, "", "set", "set_1", "set_1_x", "set_1_nan", "scale_1_2", "set_1_2_3"):
        assert read_numbers(wrong, "set", 2) is None
    assert (reach([0.2, -1.0]), reach([0.1, -3.1])) == (1.0, 5.0)
