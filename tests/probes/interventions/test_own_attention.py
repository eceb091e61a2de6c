"""Are codes of a registered normalisation written, and renormalised only if it says how?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from asked import put
from torch import Tensor

import latentcode as lc
from latentcode.errors import ConfigError
from latentcode.probes.interventions import Patch
from latentcode.probes.interventions.sites import SITES, capture, run_patched
from latentcode.seeds import make_generator


def sharp(scores: Tensor) -> Tensor:
    return (2.0 * scores).softmax(dim=-1)


def sum_to_one(code: Tensor) -> Tensor:
    return code / code.sum(dim=-1, keepdim=True)


@pytest.fixture
def model(own_names: Callable[[], None]) -> lc.HookedTransformer:
    lc.register_normalization("sharp", sharp)
    config = replace(lc.preset("smoke", "sraven", "hyla").model, normalization="sharp")
    return lc.HookedTransformer(config, seed=1).eval()


@pytest.mark.parametrize("site", list(SITES))
def test_identity_is_bit_equal_and_zeros_are_not(model: lc.HookedTransformer, site: str) -> None:
    task = lc.make_task(lc.preset("smoke", "sraven").task)
    inputs = task.sample("ood", 6, make_generator(0, "own")).inputs
    place = (site, 1)
    clean, own = capture(model, inputs, [place])
    assert torch.equal(run_patched(model, inputs, {place: lambda live: own[place].clone()}), clean)
    assert not torch.allclose(run_patched(model, inputs, {place: torch.zeros_like}), clean)


def test_renormalising_needs_to_be_registered(model: lc.HookedTransformer) -> None:
    task = lc.make_counterfactuals(lc.make_task(lc.preset("smoke", "sraven").task))
    asked = Patch("interchange", "row", (1,), renormalize=True)
    replace(asked, renormalize=False).check(task, model)
    with pytest.raises(ConfigError, match=r"'sharp', whose codes obey .*renormalize=False, or"):
        asked.check(task, model)
    lc.register_normalization("sharp", sharp, renormalize=sum_to_one, replace=True)
    asked.check(task, model)
    scope = torch.zeros(1, 18, 18, dtype=torch.bool)
    scope[:, 3] = True
    written = put(lambda live: live + 1.0, model, scope, layers=1, renormalize=True)["code", 1](
        torch.rand(1, 4, 18, 18, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(written[:, :, 3].sum(-1), torch.ones(1, 4))
