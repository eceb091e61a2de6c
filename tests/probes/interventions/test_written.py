"""Codes that are written by themselves: own ones change nothing, others do, and each alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from asked import untrained_bench

from latentcode.models.patched.sites import capture, run_patched
from latentcode.probes.interventions import Bench
from latentcode.probes.interventions.outcomes import Answers, Cells


@pytest.fixture(params=["sraven", "logic"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return untrained_bench(request.param, factorial=False)


def row(bench: Bench, layer: int = 1) -> Cells:
    n = bench.batch.inputs.shape[1]
    return Cells(layer, (n - 1,), tuple(range(n)))


def test_own_codes_leave_the_answer_and_random_ones_do_not(bench: Bench) -> None:
    cells = row(bench)
    own = bench.codes_at([3], cells)
    found = bench.written(3, cells, torch.cat([own, torch.randn_like(own)]))
    # Not to the last bit: processors add up a batch of two in another order than a single one.
    assert found.outputs[0] == pytest.approx(found.before, abs=1e-6)
    assert np.abs(found.outputs[1] - found.before).max() > 1e-4


def test_each_of_them_is_what_a_patch_of_these_cells_gives(bench: Bench) -> None:
    cells = Cells(0, (2, 5), (1, 4))
    codes = torch.cat([bench.codes_at([3], cells), 3.0 * torch.randn(
        2, *bench.codes_at([3], cells).shape[1:], generator=torch.Generator().manual_seed(0))])
    found = bench.written(3, cells, codes)
    one = bench.pairs(3, found.which, bench.targets(3, found.which)[0], 1)
    token = bench.task.answer_token(one)

    def put(live: torch.Tensor) -> torch.Tensor:
        changed = live.clone()
        for i, query in enumerate(cells.queries):
            for j, key in enumerate(cells.keys):
                changed[:, :, query, key] = codes[2, :, i, j]
        return changed

    logits = run_patched(bench.model, one.bases.inputs, {("code", 0): put})
    assert found.outputs[2] == pytest.approx(
        bench.task.outputs(token, logits)[0].numpy(), abs=1e-5)
    _, seen = capture(bench.model, one.bases.inputs, [("code", 0)])
    assert torch.equal(bench.codes_at([3], cells), seen["code", 0][:, :, [2, 5]][..., [1, 4]])


def test_the_answer_is_that_of_the_query(bench: Bench) -> None:
    cells = row(bench)
    found = bench.written(3, cells, bench.codes_at([4, 5], cells))
    held = bench.constituents(3)
    if bench.task.symbolic:  # the last token answers the last of them
        assert found.which == len(held) - 1
    assert found.truth == bench.answers(3, found.which)[held[found.which]]


def test_answers_that_cannot_be_told_apart_are_the_same() -> None:
    numbers = Answers(0, 0.5, np.array([0.5]), np.array([[0.7], [0.72], [0.9]]), least=0.1)
    assert numbers.alike(0.7).tolist() == [True, True, False]
    symbols = Answers(0, 1.0, np.array([0.1, 0.9]), np.array([[0.6, 0.4], [0.4, 0.6]]), least=0.0)
    assert symbols.alike(0.0).tolist() == [True, False]
