"""Our models give the official numbers, and `parity` rejects what is not one of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from official_golden import FORWARD, STEPS, official_golden

from latentcode.errors import ArtifactError
from latentcode.experiments.official import parity
from latentcode.experiments.official.parity import compare, main, optax_corrections
from latentcode.training.state import BETAS


@pytest.mark.parametrize("name", [*FORWARD, STEPS])
def test_official_numbers_are_ours(name: str) -> None:
    table = compare(*official_golden(name))
    assert table["agrees"].all()
    assert set(table["quantity"]) == (
        {"losses", "norms", "schedule", "parameters"} if name == STEPS else
        {"logits", "attention"})
    assert set(table["precision"]) == {"float64", "float32"}


CORRECTIONS = {
    1: (0.10000002384185791, 0.0009999871253967285),
    2: (0.19000005722045898, 0.0019989609718322754),
    8: (0.5695328712463379, 0.00797194242477417),
    45: (0.9912720322608948, 0.04402351379394531),
    1000: (1.0, 0.6322998404502869)}
"""1 - decay**count for 0.9 and 0.999, compiled by jax 0.10.2 on a CPU, as in optax's update."""


def test_corrections_are_those_of_optax() -> None:
    assert {count: optax_corrections(count) for count in CORRECTIONS} == CORRECTIONS


def test_exact_corrections_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "optax_corrections",
                        lambda count: tuple(1.0 - beta**count for beta in BETAS))
    table = compare(*official_golden(STEPS)).set_index(["quantity", "precision"])
    assert not table["agrees"]["losses", "float64"]


def nudged(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[0] += 1e-2 * max(1.0, abs(array.flat[0]))
    return array


@pytest.mark.parametrize(("name", "key", "quantity"), [
    (FORWARD[2], "param/transformer_block_0/sequence_mixer/value/kernel", "logits"),
    (FORWARD[2], "param/transformer_block_0/sequence_mixer/query/kernel", "attention"),
    (FORWARD[0], "param/transformer_block_1/relative_embedding/rel_embedding", "attention"),
    (FORWARD[1], "logits", "logits"), (FORWARD[1], "attn_weights_1", "attention"),
    (STEPS, "param0/embedding/kernel", "losses"), (STEPS, "param8/embedding/kernel", "parameters"),
    (STEPS, "grad_norms", "norms"), (STEPS, "lr_schedule_steps0_24", "schedule"),
])
def test_a_changed_number_is_noticed(name: str, key: str, quantity: str) -> None:
    config, arrays = official_golden(name)
    table = compare(config, {**arrays, key: nudged(arrays[key])}).set_index("quantity")
    assert not table["agrees"][[quantity]].any()


def test_numbers_that_are_none_do_not_agree() -> None:
    config, arrays = official_golden(FORWARD[0])
    table = compare(config, {**arrays, "logits": np.full_like(arrays["logits"], np.nan)})
    assert not table.set_index("quantity")["agrees"]["logits"].any()


def test_the_script_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, arrays = official_golden(FORWARD[0])
    file = tmp_path / "official.npz"
    for logits, status in ((arrays["logits"], 0), (nudged(arrays["logits"]), 1)):
        np.savez(file, config_json=json.dumps(config), **{**arrays, "logits": logits})
        with pytest.raises(SystemExit) as stop:
            main((file,))
        assert stop.value.code == status
        assert ("**differs**" in capsys.readouterr().out) == bool(status)
    file.write_bytes(file.read_bytes()[:9_000])
    with pytest.raises(ArtifactError, match=r"official\.npz cannot be read"):
        main((file,))
