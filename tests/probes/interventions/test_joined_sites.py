"""Several sites in one run: each is written, in every layer, of the heads that were asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.errors import ConfigError
from latentcode.models.patched.sites import Place, capture, run_patched
from latentcode.probes.interventions import Patch
from latentcode.probes.interventions.patches import Problem
from latentcode.tasks.counterfactuals import Counterfactuals

EVERYTHING = Patch("interchange", "everything", (0, 1))


@pytest.fixture(scope="module")
def task() -> Counterfactuals:
    return lc.make_counterfactuals(lc.make_task(lc.preset("smoke", "sraven").task))


@pytest.fixture(scope="module")
def model() -> lc.HookedTransformer:
    return lc.HookedTransformer(lc.preset("smoke", "sraven", "linear").model, seed=1).eval()


def patched(
    model: lc.HookedTransformer, task: Counterfactuals, intervention: Patch
) -> tuple[Tensor, Tensor, dict[Place, Tensor], dict[Place, Tensor]]:
    """Return the logits of the patched run and of the sources, and what was there before and after
    at codes, values and z."""
    pairs = task.sample("ood", 12, make_generator(0, "pairs"))
    places = [(site, layer) for site in ("code", "value", "z") for layer in (0, 1)]
    sources = pairs.others["operation+operands"].inputs
    _, before = capture(model, pairs.bases.inputs, places)
    logits, theirs = capture(model, sources, intervention.places)
    edits = intervention.edits(model, Problem(
        pairs, {"sources": theirs}, intervention.cells(task, pairs),
        torch.Generator()))
    after: dict[Place, Tensor] = {}

    def seen(place: Place, live: Tensor) -> Tensor:
        after[place] = edits[place](live) if place in edits else live
        return after[place]

    out = run_patched(model, pairs.bases.inputs, {
        place: lambda live, place=place: seen(place, live)
        for place in dict.fromkeys((*places, *edits))})
    return out, logits, before, after


def test_with_codes_values_and_residual_streams_it_is_the_source(
    model: lc.HookedTransformer, task: Counterfactuals
) -> None:
    outs = {}
    for site in ("code", "value", "z", "code+value", "code+value+residual"):
        intervention = replace(EVERYTHING, site=site)
        assert intervention.places == tuple(
            (part, layer) for part in site.split("+") for layer in (0, 1))
        outs[site], source, *_ = patched(model, task, intervention)
    torch.testing.assert_close(outs["code+value+residual"], source)
    # What codes and values make is all that heads put out.
    torch.testing.assert_close(outs["code+value"], outs["z"])
    for site in ("code", "value"):
        assert (outs["code+value"] - outs[site]).abs().amax((1, 2)).min() > 1e-6


def test_codes_values_and_z_are_written_of_the_heads_alone(
    model: lc.HookedTransformer, task: Counterfactuals
) -> None:
    *_, before, after = patched(model, task, replace(
        EVERYTHING, layers=(0,), site="code+value+z", heads=(1, 3)))
    for site, axis in (("code", 1), ("value", 2), ("z", 2)):
        changed = (after[site, 0] != before[site, 0]).movedim(axis, 0).flatten(1).any(1)
        assert changed.tolist() == [False, True, False, True]


@pytest.mark.parametrize(("change", "message"), [
    ({"site": "value+z", "keys": 0}, "expected None, or a patch of each site, a [+] b, as z is"),
    ({"value": "erase", "where": "pair"}, "expected 'code', where it can be put"),
    ({"site": "code+residual", "heads": (0,)}, r"head 0 at site 'code\+residual'"),
    ({"value": "permuted"}, "a matrix has no examples"),
])
def test_what_does_not_fit_one_of_the_sites_is_refused(
    change: dict[str, object], message: str, model: lc.HookedTransformer, task: Counterfactuals
) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(EVERYTHING, **{"site": "code+value", **change}).check(task, model)  # type: ignore
    replace(EVERYTHING, site="code+value").check(task, model)
