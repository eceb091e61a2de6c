"""On one instance: any site, several patches in one pass, and which instances can tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from asked import asked, untrained_bench
from hand_built import operation_model
from selector import Selector

from latentcode.errors import ConfigError
from latentcode.models.patched.sites import capture
from latentcode.probes.interventions import Bench, Patch, intervene_model
from latentcode.probes.interventions.bench import DRAWS
from latentcode.probes.interventions.outcomes import Ask
from latentcode.probes.interventions.patch import with_value

BOTH = "operation+operands"


@pytest.fixture(scope="module")
def selector() -> Bench:
    pairs = Selector().sample("train", 40, torch.Generator().manual_seed(0))
    return Bench(operation_model(), Selector(), pairs.bases, n_reference=100)


@pytest.fixture(scope="module")
def sraven() -> Bench:
    return untrained_bench("sraven", n_reference=64)


def test_the_whole_residual_stream_of_a_source_gives_what_the_model_answers_to_it(
    sraven: Bench
) -> None:
    for instance in range(3):
        ask = asked(instance, sraven.targets(instance, 0)[0], 0, BOTH, "everything", (0,),
                    site="residual")
        out = sraven.outcome(ask)
        assert out.answer_after == out.source_answer
        assert out.exact
        pairs = sraven.pairs(instance, 0, ask.target)
        logits, _ = capture(sraven.model, pairs.batch(BOTH).inputs[:1], ())
        np.testing.assert_allclose(
            out.after, sraven.task.outputs(sraven.task.answer_token(pairs[:1]), logits)[0],
            atol=1e-5)
        assert not np.allclose(out.outputs[-1 - DRAWS:-1], out.before, atol=1e-3)  # random


@pytest.mark.parametrize("site", ["code", "value", "z", "residual", "code+value"])
def test_own_activations_leave_every_bit_at_every_site(sraven: Bench, site: str) -> None:
    for where in ("within context", "within operands", "within response", "everything"):
        out = sraven.outcome(asked(1, sraven.targets(1, 0)[0], 0, BOTH, where, (0, 1), site=site))
        assert out.exact
        assert set(out.table["patch"]) == {BOTH, "control", "unrelated", "random", "identity"}


def test_what_is_held_stays_whatever_was_put_there(selector: Bench) -> None:
    layer = (selector.model.cfg.n_layers - 1,)
    for instance in range(4):
        target = selector.targets(instance, 0)[1]
        source = Patch(BOTH, "row", layer)
        moved = selector.outcome(Ask(source, instance, target))
        held = selector.outcome(Ask(source + Patch("held", "row", layer), instance, target))
        assert moved.classes == ["operation"]
        assert held.classes == ["base"]
        np.testing.assert_array_equal(held.after, held.before)
        # The controls are put where the source was, and what is held is held there, too.
        assert held.drawn("random") == {**dict.fromkeys(held.known, 0), "else": 0, "base": DRAWS}


def test_several_patches_are_those_of_intervene(sraven: Bench) -> None:
    target = sraven.targets(2, 0)[1]
    patch = (Patch(BOTH, "context", (0,)) + Patch(BOTH, "within response", (1,), "value")
             + Patch("held", "within context", (1,), "value"))
    out = sraven.outcome(Ask(patch, 2, target), 0)
    pairs = sraven.pairs(2, 0, target)[:1]

    class Given(type(sraven.task)):  # type: ignore[misc]
        def sample(self, split: str, n: int, generator: object) -> object:
            twice = pairs[torch.tensor([0, 0])]
            return replace(twice, counts=torch.ones_like(twice.counts))

        def right(self, pairs: object, logits: torch.Tensor, of: str) -> torch.Tensor:
            return torch.ones(len(logits), dtype=torch.bool)

    result = intervene_model(sraven.model, Given(sraven.task.task), patch, n=2)  # type: ignore[attr-defined]
    p = result.table.set_index("metric")["value"]
    assert p["p_base_answer"] == pytest.approx(out.after[int(out.truth)], abs=1e-6)


def test_an_outcome_without_controls_is_the_same(selector: Bench) -> None:
    ask = asked(3, selector.targets(3, 0)[0], 0, BOTH, "row")
    quick, full = selector.outcome(ask, 0), selector.outcome(ask)
    np.testing.assert_array_equal(quick.after, full.after)
    assert quick.table["patch"].tolist() == [BOTH, "identity"]
    assert len(full.table) == 2 + 3 * DRAWS
    assert quick.sentence() == full.sentence()
    with pytest.raises(ConfigError, match="draws is 9; expected 0 to 8"):
        selector.outcome(ask, 9)


def test_means_of_values_and_streams(sraven: Bench) -> None:
    known = sraven.references_at(("value",)).count
    target = next(name for name in sraven.targets(0, 0)
                  if float(known[0, sraven.task.constituents.index(name)]))
    for site in ("value", "residual"):
        out = sraven.outcome(asked(0, target, 0, "class_mean", "within context", (1,), site=site))
        assert np.isfinite(out.outputs).all()
        assert (site,) in sraven.measured
        assert not np.allclose(out.after, out.before)


def test_those_that_tell_are_those_that_count(selector: Bench) -> None:
    ask = asked(0, "", 0, BOTH, "row")
    found = dict(selector.telling(ask, range(20)))
    counted = selector.replicate(Patch(BOTH, "row"), range(20))
    mine = counted.table[counted.table["patch"] == BOTH]
    assert found == dict(zip(mine["number"], mine["source_label"], strict=True))


def test_controls_replace_what_comes_from_a_source_alone() -> None:
    patch = Patch(BOTH, "row", 0) + Patch("held", "row", 1)
    assert [part.value for part in with_value(patch, "random").parts] == ["random", "held"]
    assert [part.value for part in with_value(patch, "identity", all_parts=True).parts] == [
        "identity"] * 2
