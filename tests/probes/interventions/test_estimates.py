"""Estimates are derivatives, along the path they sum to the effect; roles follow permutations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch

import latentcode as lc
from latentcode.config import SravenConfig
from latentcode.devices import make_generator
from latentcode.models.patched.sites import capture, gradients, run_patched
from latentcode.probes.interventions.estimates import by_cell, cells, masks
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.sraven.counterfactuals import feature_of

PLACES = [*product(("code", "value"), (0, 1))]


@pytest.mark.parametrize("kind", ["softmax", "hyla"])
def test_slopes_are_derivatives(smoke_run: Callable[[str, str], lc.Run], kind: str) -> None:
    run = smoke_run("logic", kind)
    model = run.load_model().double()
    inputs = make_task(run.config.task).sample("ood", 3, make_generator(0, "t")).inputs.double()
    clean, own = capture(model, inputs, PLACES)
    found, slopes = gradients(model, inputs, PLACES, lambda logits: logits[:, -1, 0])
    generator = torch.Generator().manual_seed(0)
    for place in PLACES:
        assert torch.equal(found[place], own[place])
        towards = torch.randn(own[place].shape, generator=generator, dtype=torch.float64)
        there, back = (run_patched(model, inputs, {place: partial(torch.add, other=size * towards)})
                       for size in (1e-5, -1e-5))
        expected = (slopes[place] * towards).flatten(1).sum(1)
        torch.testing.assert_close((there - back)[:, -1, 0] / 2e-5, expected, rtol=1e-4, atol=1e-7)
    assert clean.isfinite().all()


def test_along_the_path_estimates_sum_to_the_effect(
    smoke_run: Callable[[str, str], lc.Run]
) -> None:
    run = smoke_run("logic", "softmax")
    model = run.load_model().double()
    task = make_task(run.config.task)
    inputs, others = (task.sample("ood", 4, make_generator(seed, "t")).inputs.double()
                      for seed in (0, 1))
    codes = [("code", 0), ("code", 1)]
    clean, own = capture(model, inputs, codes)
    _, theirs = capture(model, others, codes)
    total = torch.zeros(4, dtype=torch.float64)
    for point in range(20):
        _, slopes = gradients(model, inputs, codes, lambda logits: logits[:, -1, 0], {
            p: own[p] + (point + 0.5) / 20 * (theirs[p] - own[p]) for p in codes})
        for p in codes:
            total += (slopes[p] * (theirs[p] - own[p])).flatten(1).sum(1) / 20
    written = run_patched(model, inputs, {p: lambda live, p=p: theirs[p] for p in codes})
    torch.testing.assert_close(total, (written - clean)[:, -1, 0], rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("permuted", [False, True])
def test_roles_follow_the_feature_that_is_asked_about(permuted: bool) -> None:
    config = replace(SravenConfig(n_features=3), permuted=permuted)
    pairs = make_counterfactuals(make_task(config)).sample("train", 20, make_generator(0, "t"))
    names, role = make_counterfactuals(make_task(config)).roles(pairs)
    assert len(names) == 27
    assert names[5] == "row1.panel2 other 2"
    torch.testing.assert_close(role.sort(1).values, torch.arange(27).expand(20, -1))
    own = torch.tensor([name.endswith(" own") for name in names])[role]
    symbols = pairs.bases.info["grid"].flatten(1)[own].view(20, 3, 3)
    torch.testing.assert_close(symbols, feature_of(pairs.bases, pairs.slot))


def test_a_place_holds_all_codes_of_its_roles() -> None:
    role = torch.tensor([[0, 0, 1], [1, 0, 0]])  # of three tokens, in two instances
    code = torch.arange(18.0).view(2, 1, 3, 3)
    sums = by_cell("code", code, cells("code", role, 2), 4)
    assert sums[0, 0].tolist() == [0 + 1 + 3 + 4, 2 + 5, 6 + 7, 8]
    assert sums[1, 0].tolist() == [13 + 14 + 16 + 17, 12 + 15, 10 + 11, 9]
    chosen = torch.tensor([[False, False, True, False], [False] * 4])
    (place, mask), = masks("code", (0, 1), chosen, role, 2).items()
    assert place == ("code", 0)
    assert code[0][mask[0]].tolist() == [6, 7]
    assert code[1][mask[1]].tolist() == [10, 11]
    value = torch.ones(2, 3, 1, 4)
    assert by_cell("value", value, cells("value", role, 2), 2)[0, 0].tolist() == [8, 4]
