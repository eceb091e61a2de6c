"""The standard interventions of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import latentcode as lc
from latentcode.errors import ProbeError
from latentcode.probes.interventions import PATCHES, standard_interventions
from latentcode.tasks.counterfactuals import PLACES, SCOPES


@pytest.fixture(scope="module")
def run(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    """A model that has learned nothing, and is right by chance now and then."""
    return smoke_run("sraven", "hyla")


def test_every_write_has_its_place() -> None:
    chosen = standard_interventions(range(4), 16, tuple(SCOPES), places=tuple(PLACES))
    assert len(set(chosen)) == len(chosen)
    assert {i.value for i in chosen} == {name for name in PATCHES if "third" not in name}
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
