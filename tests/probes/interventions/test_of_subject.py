"""The standard interventions of a run."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

import latentcode as lc
from latentcode.errors import ConfigError, ProbeError
from latentcode.probes.interventions import PATCHES, first_interventions, standard_interventions
from latentcode.probes.interventions.result import intervention_figure
from latentcode.tasks.counterfactuals import PLACES, SCOPES


@pytest.fixture(scope="module")
def run(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    """A model that has learned nothing, and is right by chance now and then."""
    return smoke_run("sraven", "hyla")


def test_every_write_has_its_place() -> None:
    chosen = standard_interventions(range(4), 16, tuple(SCOPES), places=tuple(PLACES))
    assert len(set(chosen)) == len(chosen)
    of_studies = {name for name in PATCHES
                  if name == "frozen" or "third" in name or name.endswith("pooled")}
    assert {i.value for i in chosen} == set(PATCHES) - of_studies
    assert {i.where for i in chosen} == {*SCOPES, *PLACES}
    assert {i.layers for i in chosen} >= {(0,), (3,), (2, 3), (0, 1, 2, 3)}
    assert any(i.renormalize for i in chosen)
    bare = standard_interventions(range(2), 8, ("pair", "row", "everything"), normalized=False)
    assert not any(i.renormalize for i in bare)
    # A source never stands alone: the same place is written with the same constituents.
    for i in chosen:
        if i.value == "interchange" and i.heads is None:
            assert any(j.value == "control" and (j.where, j.layers, j.site) ==
                       (i.where, i.layers, i.site) for j in chosen)


def test_the_sources_of_a_factorial_stand_beside_each_other() -> None:
    sraven, logic = (tuple(s for s in SCOPES if s not in without) for without in (
        ("examples",), ("pairs", "feature")))
    chosen = standard_interventions(range(4), 16, sraven, lacks=("permuted",))
    assert len(chosen) < 200
    sources = {"interchange", "control", "operands", "operation+operands", "unrelated"}
    for scope in ("row", "everything"):
        for layers in ((0,), (3,), (0, 1), (0, 1, 2), (2, 3), (0, 1, 2, 3)):
            assert sources <= {i.value for i in chosen if i.site == "code"
                              and (i.where, i.layers) == (scope, layers)}
    assert {i.value for i in chosen if i.site == "code+value"} == sources
    assert not any(i.value == "permuted" for i in chosen)
    examples = {(i.value, i.site) for i in standard_interventions(range(2), 8, logic)
                if i.where == "examples" and i.layers == (0, 1)}
    assert examples == {(patch, "value") for patch in (*sources, "permuted")}
    alone = standard_interventions(range(4), 16, sraven, lacks=("factorial", "permuted"))
    assert {i.value for i in alone}.isdisjoint(sources - {"interchange", "control"})
    assert all(len(i.layers) in (1, 4) or i.layers == (2, 3) for i in alone)


@pytest.mark.parametrize("lacks", [("permuted",), ("factorial", "permuted")])
def test_the_default_is_a_readable_part_of_the_whole(lacks: tuple[str, ...]) -> None:
    scopes = tuple(s for s in SCOPES if s != "examples")
    first = first_interventions(range(4), scopes, lacks)
    assert set(first) <= set(standard_interventions(range(4), 16, scopes, lacks=lacks))
    assert len(first) <= 50
    everywhere = {(i.value, i.where) for i in first if i.layers == (0, 1, 2, 3)}
    for patch in ("interchange", "control", *(
            ("operands", "operation+operands", "unrelated") if "factorial" not in lacks else ())):
        assert {(patch, "row"), (patch, "everything")} <= everywhere
        assert {i.layers for i in first if (i.value, i.where) == (patch, "row")} == {
            (0,), (1,), (2,), (3,), (2, 3), (0, 1, 2, 3)}
    assert {"random", "zero_ablation", "identity"} <= {i.value for i in first}


def test_whole_is_in_place_of_interventions(run: lc.Run) -> None:
    with pytest.raises(ConfigError, match="whole"):
        lc.intervene(run, interventions=[lc.Patch()], whole=True)


def test_layers_are_drawn_in_their_order() -> None:
    table = pd.DataFrame([
        {**lc.Patch(patch, "row", layers).row(), "metric": "flip", "value": 0.5,
         "low": 0.4, "high": 0.6}
        for patch in ("interchange", "control", "random")
        for layers in ((2, 4, 6), (10,), (0, 1), (2,), (8, 9, 10, 11))])
    maps, _, rates = intervention_figure(table, 0.1).axes
    assert [text.get_text() for text in maps.get_xticklabels()] == [
        "2", "10", "0,1", "2,4,6", "8-11"]
    assert "random: row, layers 8-11" in [text.get_text() for text in rates.get_yticklabels()]


def test_a_run_is_intervened_on(run: lc.Run) -> None:
    chosen = [lc.Patch("identity", "row", (1,)),
              lc.Patch("interchange", "everything", (0, 1))]
    result = lc.intervene(run, interventions=chosen, n=800, factorial=False)
    rates = result.table.pivot(index="patch", columns="metric", values="value")
    assert rates.loc["identity", "unchanged"] == 1.0
    assert rates.loc["identity", "kl"] == 0.0
    assert rates.loc["interchange", "kl"] > 0.0
    assert result.settings["kind"] == "hyla"
    assert 2 <= result.settings["n_known"] < result.settings["n_counted"] <= 800
    again = lc.intervene(run.path, interventions=chosen, n=800, factorial=False)
    assert again.table.equals(result.table)
    with pytest.raises(ProbeError, match="the model gives all of them in"):
        lc.intervene(run, interventions=chosen[:1], n=4)
