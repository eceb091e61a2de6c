"""A mean of problems is written as it is computed by hand, beside random ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("streamlit")
from latentcode.app.data import written
from latentcode.app.data.benches import OpenBench, open_bench
from latentcode.app.data.catalog import find_entry
from latentcode.models.patched.sites import capture, run_patched


@pytest.fixture(scope="module")
def opened() -> OpenBench:
    return open_bench(find_entry("logic-hyla", ()), "ood", 0)


def test_a_mean_of_problems_is_written_to_every_code_of_a_place(opened: OpenBench) -> None:
    bench, rows = opened.bench, [3, 8, 11, 40]
    query, key = written.position(opened, 5, "query->query")
    cells = written.cells(opened, 5, 0, query, key)
    assert (query, key) == (31, 31)
    assert cells[written.CONTEXT].queries == tuple(range(31))
    codes = written.means(opened, cells[written.CONTEXT], rows)
    assert len(codes) == 1 + written.CONTROLS
    found = written.answers(opened, 5, cells[written.CONTEXT], codes)
    _, seen = capture(bench.model, bench.rows(rows).inputs, [("code", 0)])
    mean = seen["code", 0].mean(0)

    def put(live: torch.Tensor) -> torch.Tensor:
        return torch.cat([mean[:, :31], live[0, :, 31:]], 1)[None]

    logits = run_patched(bench.model, bench.rows([5]).inputs, {("code", 0): put})
    assert found.answer(0) == pytest.approx(float(logits[0, -1, 0]), abs=1e-5)
    assert found.answer(0) != found.answer()
    # Means over as many random problems: all others.
    assert len(np.unique(found.outputs[1:])) == written.CONTROLS


def test_a_mean_code_has_as_many_random_ones_beside_it() -> None:
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(300, 4)) + np.array([2.0, 0.0, 0.0, 0.0])
    selected = np.arange(300) < 200
    found = written.mean_code(codes, selected)[:, :, 0, 0].numpy()
    assert found[0] == pytest.approx(codes[selected].mean(0))
    apart = np.linalg.norm(found[1:] - codes.mean(0), axis=1)
    assert apart.max() < 0.4  # as means of 200 of these are
    assert len(np.unique(found[1:, 0])) == written.CONTROLS
