"""The bench page shows what the library says, and its state is in the URL."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("streamlit")
from asked import asked
from small_app import charts, component, text
from small_app import shown as shown_page
from streamlit.testing.v1 import AppTest
from torch import Tensor

import latentcode as lc
from latentcode.probes.interventions import Bench, ByHand, Patch
from latentcode.probes.interventions.outcomes import Ask

Open = Callable[..., AppTest]
BenchOf = Callable[[str], Bench]


@pytest.fixture
def shown(models: Path) -> Open:
    return lambda model, **query: shown_page("intervene", model=f"{models.name}/{model}", **query)


def test_the_page_shows_the_outcome(shown: Open, bench_of: BenchOf) -> None:
    bench = bench_of("sraven")
    target = bench.targets(5, 1)[2]
    ask = asked(5, target, 1, "interchange", "row", (1,))
    app = shown("sraven", instance="5", which="1", target=target, scope="row", layers="1",
                what="minimal pair", site="codes")
    outcome = bench.outcome(ask)
    assert f"##### {outcome.sentence()}" in text(app)
    assert "leaves every bit of the output" in text(app)
    for note in outcome.caveats()[:2]:
        assert note in text(app)
    found = charts(app)
    answers = found["answers"]
    assert [bar.name for bar in answers.data] == ["before", "after"]
    assert answers.data[1].x == pytest.approx(outcome.after)
    assert f"{target} here" in "".join(answers.layout.yaxis.ticktext)
    assert ("controls" in found) == outcome.telling
    assert not app.error


def test_controls_say_whose_answers_come(shown: Open, bench_of: BenchOf) -> None:
    bench = bench_of("sraven")
    ask, outcome = next(
        (ask, found) for i in range(20) for target in bench.targets(i, 0)
        if (found := bench.outcome(ask := asked(
            i, target, 0, "operation+operands", "row", (1,)))).telling and found.candidates)
    app = shown("sraven", instance=str(ask.instance), target=ask.target, scope="row", layers="1",
                what="other rule and operands")
    bars = charts(app)["controls"].data
    for row, name in enumerate((ask.named, "control", "unrelated", "random")):
        drawn = outcome.drawn(name)
        assert {bar.name: int(bar.text[row] or 0) for bar in bars if bar.text[row]} == {
            outcome.in_short()[one]: n for one, n in drawn.items() if n}


def test_controls_that_cannot_tell_are_left_out(shown: Open, bench_of: BenchOf) -> None:
    bench = bench_of("sraven")
    ask, outcome = next(
        (ask, found) for i in range(40) for target in bench.targets(i, 0)
        if not (found := bench.outcome(ask := asked(
            i, target, 0, "interchange", "row", (1,)))).telling and found.counts)
    assert outcome.answer_before == outcome.target_answer
    app = shown("sraven", instance=str(ask.instance), target=ask.target, scope="row", layers="1",
                what="minimal pair")
    assert "controls" not in charts(app)
    assert "Controls are left out" in text(app)
    assert f"already gives {ask.target}'s answer" in text(app)


def test_another_problem(shown: Open) -> None:
    app = shown("sraven", instance="5")
    press(app, "Another one")
    number = app.number_input[0].value
    assert number != 5
    assert app.query_params["instance"] in (str(number), [str(number)])
    app.number_input[0].set_value(7).run()
    assert app.query_params["instance"] in ("7", ["7"])
    text(app)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["other problem", "mean", "other rule and operands"])
def test_everything_can_be_written(shown: Open, what: str) -> None:
    app = shown("sraven", what=what)
    assert re.search("##### (The answer stays|It gives) ", text(app))
    assert not app.error
    assert [n.label for n in app.number_input] == (
        ["Problem", "Number of the other problem"] if what == "other problem" else ["Problem"])


def press(app: AppTest, label: str) -> AppTest:
    return next(button for button in app.button if button.label == label).click().run()


def test_numbers_by_hand(shown: Open, bench_of: BenchOf) -> None:
    app = shown("sraven", what="by hand", scope="pair", layers="1", instance="0")
    bench = bench_of("sraven")
    own = bench.code(0)[1]
    shown_bars = component(app, "handles")
    assert shown_bars["values"] == pytest.approx(own, abs=0.006)
    assert shown_bars["ghost"] == shown_bars["values"]
    target = app.selectbox("target").value
    assert [tick["name"] for tick in shown_bars["ticks"] if tick["marked"]] == [target]
    # As somebody who drags head 2 leaves the URL.
    values = (*shown_bars["values"][:2], 0.5, *shown_bars["values"][3:])
    app = shown("sraven", what="by hand", scope="pair", layers="1", instance="0",
                numbers="_".join(["set", *map(str, values)]))
    assert component(app, "handles")["values"] == pytest.approx(values)
    assert component(app, "handles")["ghost"] == shown_bars["ghost"]
    outcome = bench.outcome(asked(0, target, 0, ByHand(values), "pair", (1,)))
    assert f"##### {outcome.sentence()}" in text(app)
    assert component(press(app, "Its own"), "handles")["values"] == shown_bars["values"]
    assert component(press(app, "Zero"), "handles")["values"] == [0.0] * len(own)
    means = bench.mean_codes(0)
    assert [tick["name"] for tick in shown_bars["ticks"]] == list(means)
    assert component(press(app, "sum"), "handles")["values"] == pytest.approx(
        means["sum"][1], abs=0.006)
    assert str(app.query_params["numbers"]).strip("[]'").startswith("set_")


def test_a_patch_of_ones_own_is_among_the_codes(
    shown: Open, bench_of: BenchOf, own_names: Callable[[], None]
) -> None:
    @lc.register_patch("halfway", source="operation+operands")
    def halfway(base: Tensor, source: Tensor, problem: object) -> Tensor:
        """Half of its own and half of the source's {code}."""
        return (base + source) / 2

    app = shown("sraven", instance="5", what="halfway", scope="row", layers="1")
    assert not app.error
    assert "halfway: Half of its own and half of the source's {code}" in text(app)
    bench, target = bench_of("sraven"), app.selectbox("target").value
    outcome = bench.outcome(asked(5, target, 0, "halfway", "row", (1,)))
    assert f"##### {outcome.sentence()}" in text(app)


@pytest.mark.slow
def test_places_sites_and_several_patches(shown: Open, bench_of: BenchOf) -> None:
    bench = bench_of("sraven")
    target = bench.targets(5, 0)[1]
    where = {"instance": "5", "target": target, "what": "other rule and operands", "layers": "0"}
    name = "operation+operands"
    for query, patch in (
        ({"scope": "context", "site": "values"}, Patch(name, "within context", 0, "value")),
        ({"scope": "operands", "site": "residual stream"}, Patch(name, "operands", 0, "residual")),
        ({"scope": "response", "site": "codes and values"},
         Patch(name, "response", 0) + Patch(name, "within response", 0, "value")),
        ({"scope": "context", "site": "codes", "and": "held", "site2": "values",
          "scope2": "response", "layers2": "1"},
         Patch(name, "context", 0) + Patch("held", "within response", 1, "value")),
        ({"scope": "everything", "site": "codes", "queries": "15-17", "keys": "0-3_8"},
         Patch(name, "everything", 0, queries=(15, 16, 17), keys=(0, 1, 2, 3, 8))),
    ):
        app = shown("sraven", **where, **query)
        assert not app.error
        outcome = bench.outcome(Ask(patch, 5, target))
        assert f"##### {outcome.sentence()}" in text(app)
    assert component(app, "tokens")["chosen"] == {
        "queries": [15, 16, 17], "keys": [0, 1, 2, 3, 8]}


def test_no_layer_chosen_stands_for_all(shown: Open, bench_of: BenchOf) -> None:
    bench = bench_of("sraven")
    target = bench.targets(5, 0)[1]
    app = shown("sraven", instance="5", target=target, scope="row", layers="",
                what="minimal pair", site="codes")
    assert not [*app.error, *app.info]
    every = tuple(range(bench.model.cfg.n_layers))
    outcome = bench.outcome(asked(5, target, 0, "interchange", "row", every))
    assert f"##### {outcome.sentence()}" in text(app)
