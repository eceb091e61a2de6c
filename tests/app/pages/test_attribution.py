"""The map of one problem is drawn as the library computes it, and says how far to trust it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("streamlit")
from small_app import component, text
from small_app import shown as shown_page
from streamlit.testing.v1 import AppTest

import latentcode as lc
from latentcode.app.attribution.cells import tokens_of
from latentcode.probes.attribution import attribute_problem
from latentcode.probes.interventions import Bench

Open = Callable[..., AppTest]
BenchOf = Callable[[str], Bench]


@pytest.fixture
def shown(models: Path) -> Open:
    return lambda model, **query: shown_page("intervene", model=f"{models.name}/{model}", **query)


def difference(bench: Bench, instance: int) -> str:
    """Return a target whose answer is another one."""
    return next(target for target in bench.targets(instance, 0)
                if bool(bench.pairs(instance, 0, target).counts[0]))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "across"), [("sraven", 3), ("logic", 0)])
def test_the_map_comes_when_it_is_asked_for(
    shown: Open, bench_of: BenchOf, name: str, across: int
) -> None:
    bench = bench_of(name)
    target = difference(bench, 2)
    app = shown(name, instance="2", which="0", target=target, what="minimal pair")
    assert component(app, "cells") is None
    next(button for button in app.button if button.label == "Show the map").click().run()
    found = attribute_problem(bench.model, bench.task, bench.pairs(2, 0, target)[:1])
    drawn = component(app, "cells")
    assert [[cell["value"] for cell in layer["cells"]] for layer in drawn["layers"]] == [
        pytest.approx(row, rel=1e-4, abs=1e-7) for row in found.estimates]
    assert (drawn["across"], drawn["written"]) == (across, [])
    assert f"patching all has an effect of {found.everything:.3g}" in text(app)
    alone = app.segmented_control("colour of the map").set_value("written alone").run()
    assert alone.query_params["map"] in ("written alone", ["written alone"])
    assert not alone.error
    assert component(alone, "cells")["most"] == pytest.approx(np.abs(found.effects).max(), rel=1e-4)


def test_one_key_is_written(shown: Open, bench_of: BenchOf) -> None:
    bench = bench_of("sraven")
    target = difference(bench, 2)
    key = "panel 3, token 0"
    app = shown("sraven", instance="2", which="0", target=target, layers="1", scope="row",
                keys=key, map="written alone", what="minimal pair", site="codes")
    number = lc.make_task(bench.task.task.config).token_names.index(key)  # type: ignore[attr-defined]
    outcome = bench.patch(lc.Patch(where="row", layers=(1,), keys=(number,)), 2, target)
    assert f"##### {outcome.sentence()}" in text(app)
    assert f"attending to {key}**, before and after" in text(app)
    assert component(app, "cells")["written"] == [[1, number]]
    by_hand = shown("sraven", instance="2", target=target, layers="1", scope="row", keys=key,
                    what="by hand", site="codes")
    assert component(by_hand, "handles")["values"] == pytest.approx(
        bench.code(2, 0, number)[1], abs=0.006)


def test_no_map_where_no_answer_differs(shown: Open, bench_of: BenchOf) -> None:
    bench = bench_of("sraven")
    instance, target = next(
        (i, target) for i in range(20) for target in bench.targets(i, 0)
        if not bool(bench.pairs(i, 0, target).counts[0]))
    app = shown("sraven", instance=str(instance), which="0", target=target, map="estimated part",
                what="minimal pair")
    assert any("no difference to attribute" in info.value for info in app.info)


def test_tokens_in_panels_and_in_a_strip() -> None:
    symbols = np.eye(3)[[2, 0, 1, 1]]
    symbols[3] = 0.0
    roles = ["row1.panel1 own", "row1.panel2 other 1", "row2.panel1 own", "row2.panel2 own"]
    found = tokens_of(symbols, roles, ["a", "b", "c", "d"])
    assert [token.text for token in found] == ["2", "0", "1", "?"]
    assert [token.panel for token in found] == [0, 1, 2, 3]
    assert [token.own for token in found] == [True, False, True, True]
    strip = tokens_of(np.full((2, 3), 0.5), ["example", "query"], ["a", "b"])
    assert [(token.text, token.panel) for token in strip] == [("0", -1), ("1", -1)]
