"""Are the features what the hooks show, and what becomes of the wide ones?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from reading import read_rows

import latentcode as lc
import latentcode.codes.features as rows_module
from latentcode.codes.features import WIDEST
from latentcode.codes.reader import Rows
from latentcode.devices import make_generator
from latentcode.errors import ConfigError


@pytest.fixture(scope="module")
def run(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    return smoke_run("sraven", "hyla")


def rows_of(run: lc.Run, **reading: Any) -> Rows:
    task = lc.make_task(run.config.task)
    return read_rows(run.load_model(), task, **reading)


def test_features_are_what_the_hooks_show(run: lc.Run) -> None:
    pair = "response.0->row3.panel2.same"
    task, batch = lc.make_task(run.config.task), lc.instances(run, n=6)
    _, cache = run.load_model().run_with_cache(batch.inputs)
    query, key = (found[:, 0] for found in task.positions([pair], batch))
    at, m = torch.arange(6), task.config.n_features
    pattern, values, stream = (cache[f"blocks.1.{name}"] for name in (
        "attn.hook_pattern", "attn.hook_v", "hook_resid_pre"))
    places = {"context": slice(0, 6 * m), "operands": slice(6 * m, 8 * m),
              "response": slice(8 * m, None)}
    shown = {
        "code": pattern[at, :, query, key], "row": pattern[at, :, query],
        "row.last_row": pattern[at, :, query, -3 * m:], "codes": pattern, "values": values,
        "residual": stream[at, query], "tokens": stream}
    shown |= {f"{name}.{place}": of_token[:, tokens] for place, tokens in places.items()
              for name, of_token in (("codes", pattern.movedim(2, 1)), ("values", values),
                                     ("tokens", stream))}
    rows = rows_of(run, n=6, pair=pair, features=list(shown), batch_size=4)
    narrow = 0
    for name, found in shown.items():
        expected = found.flatten(1)
        assert rows.sizes[name, "1"] == expected.shape[1]
        kept = rows.values[name, "1"]
        assert kept.shape == (6, min(expected.shape[1], WIDEST))
        if expected.shape[1] <= WIDEST:
            narrow += 1
            np.testing.assert_allclose(kept, expected, rtol=1e-4, atol=1e-4)
    assert narrow >= 7
    assert (rows.labels["combination"] == task.labels(batch)["combination"]).all()


def test_wide_features_are_projected_and_layers_add_up(run: lc.Run) -> None:
    rows = rows_of(run, n=5, features="codes", batch_size=2)
    _, cache = run.load_model().run_with_cache(lc.instances(run, n=5).inputs)
    total = 0.0
    for layer in range(run.config.model.n_layers):
        codes = cache[f"blocks.{layer}.attn.hook_pattern"].flatten(1)
        generator = make_generator(0, f"project codes {layer}")
        projected = codes @ torch.randn(codes.shape[1], WIDEST, generator=generator) / WIDEST**0.5
        np.testing.assert_allclose(rows.values["codes", str(layer)], projected, atol=1e-4)
        total = total + projected
    np.testing.assert_allclose(rows.values["codes", "all"], total, atol=1e-4)
    assert rows.sizes["codes", "all"] == run.config.model.n_layers * codes.shape[1]


def test_what_is_too_large_to_project_is_named(
    run: lc.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "LARGEST", 100)
    with pytest.raises(ConfigError, match=r"feature 'codes' has \d+ numbers in each layer; "):
        rows_of(run, n=3, features="codes")
