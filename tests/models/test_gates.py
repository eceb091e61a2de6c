"""Gates of attention are read, and value networks need them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_bridges import make
from small_language_models import SmallModels

from latentcode.errors import ConfigError
from latentcode.models.hooks import see
from latentcode.models.hypernetwork import effective_codes, gates, identity_error, value_network
from latentcode.models.pretrained import load_pretrained

TOKENS = torch.randint(1, 400, (2, 6), generator=torch.Generator().manual_seed(0))
GATED = {"Qwen3_5ForCausalLM": ({1: "sigmoid"}, 8),
         "AfmoeForCausalLM": (dict.fromkeys((0, 1), "sigmoid"), 8),
         "LagunaForCausalLM": (dict.fromkeys((0, 1), "softplus"), 1)}
"""Function of the gate by layer, and numbers a head."""


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    opened: dict[str, Any] = {}

    def open_(name: str) -> Any:
        if name not in opened:
            folder = Path(tmp_path_factory.mktemp("gated")) / name
            make(name, folder)
            opened[name] = load_pretrained(folder)
        return opened[name]

    return open_


@pytest.mark.parametrize("name", GATED)
def test_codes_times_gates_weight_values(name: str, gated: Any) -> None:
    model = gated(name)
    functions, numbers = GATED[name]
    found = gates(model)
    assert {layer: gate.function for layer, gate in found.items()} == functions
    layer = max(functions)
    points = [f"blocks.{layer}.attn.{point}" for point in (
        "hook_pattern", "v.hook_out", "o.hook_in")]
    with torch.no_grad():
        _, seen = see(model, TOKENS, [*points, found[layer].hook])
    pattern, values, z = (seen[point] for point in points)
    gate = found[layer](seen[found[layer].hook])
    assert gate.shape == (2, 6, 4, numbers)
    values = values.repeat_interleave(4 // values.shape[2], dim=2)
    torch.testing.assert_close(torch.einsum("bhqk,bkhd->bqhd", pattern, values) * gate, z)
    effective = effective_codes(model, TOKENS, layer)
    torch.testing.assert_close(effective, pattern * gate.mean(-1).transpose(1, 2)[..., None])
    if numbers == 1:  # then the score times the gate is all there is
        torch.testing.assert_close(torch.einsum("bhqk,bkhd->bqhd", effective, values), z)


def test_a_value_network_wants_the_gate_that_there_is(
    gated: Any, small_models: SmallModels
) -> None:
    model = gated("AfmoeForCausalLM")
    assert identity_error(model, TOKENS).max() < 1e-5
    code, attention = torch.rand(4), model.blocks[0].attn
    whole = value_network(model, 0, code, gate=torch.ones(4, 1)).matrix
    values = attention.W_V.repeat_interleave(2, dim=0)
    torch.testing.assert_close(whole, torch.einsum("h,hde,hef->df", code, values, attention.W_O))
    closed = value_network(model, 0, code, gate=torch.zeros(4, 8)).matrix
    assert not closed.any()
    with pytest.raises(ConfigError, match=r"gate is missing, .* layer 0 has one; expected gate="):
        value_network(model, 0, code)
    llama = load_pretrained(small_models("llama"))
    assert not gates(llama)
    with pytest.raises(ConfigError, match=r"gate is given, .*has not one"):
        value_network(llama, 0, code, gate=torch.ones(4, 1))
    with torch.no_grad():
        _, seen = see(llama, TOKENS, ["blocks.0.attn.hook_pattern"])
    assert torch.equal(effective_codes(llama, TOKENS, 0), seen["blocks.0.attn.hook_pattern"])
