"""Eq. 2 = Eq. 5: a layer's output equals the sum of its generated value networks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_bridges import make
from small_language_models import SmallModels

import latentcode as lc
from latentcode.errors import ConfigError
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, with_kind
from latentcode.models.hooks import see
from latentcode.models.hypernetwork import (
    effective_codes,
    gates,
    identity_error,
    key_inputs,
    shown_output,
    two_ways,
    value_network,
)
from latentcode.models.pretrained import load_pretrained
from latentcode.models.transformer import HookedTransformer

CONFIG = ModelConfig(d_input=5, d_output=3, d_model=16, n_heads=4, d_head=2, d_head_v=3, d_mlp=24,
                     n_buckets=6, max_distance=6, attention_dropout=0.0)


def _model(config: ModelConfig) -> HookedTransformer:
    model = HookedTransformer(config, seed=1).double().eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(
            parameter.shape, generator=generator, dtype=torch.float64)
    return model


@pytest.mark.parametrize("phi", ["relu", "tanh"])
@pytest.mark.parametrize("kind", ATTENTION_KINDS)
def test_the_layer_is_the_sum_of_its_value_networks(kind: str, phi: str) -> None:
    config = with_kind(CONFIG, kind)
    if config.nonlinearity != "identity":
        config = replace(config, nonlinearity=phi)
    model = _model(config)
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    with torch.no_grad():
        _, cache = model.run_with_cache(inputs)
        for layer, block in enumerate(model.blocks):
            x = block.ln1(cache["resid_pre", layer])  # [B, K, D]
            code = cache["pattern", layer].permute(0, 2, 3, 1)  # [B, Q, K, H]
            network = value_network(model, layer, code)
            y = network(x[:, None].expand(-1, 6, -1, -1)).sum(dim=2) + block.attn.b_O
            assert float((y - cache["attn_out", layer]).abs().max()) <= 1e-10
            if network.is_linear:
                as_matrix = torch.einsum("bkd,bqkde->bqe", x, network.matrix)
                as_matrix = as_matrix + network.offset.sum(dim=2) + block.attn.b_O
                assert float((as_matrix - cache["attn_out", layer]).abs().max()) <= 1e-10


def test_generated_weights_are_linear_in_the_code() -> None:
    model = _model(with_kind(CONFIG, "linear"))
    a, b = torch.randn(2, 4, dtype=torch.float64)
    with torch.no_grad():
        total = value_network(model, 0, 2 * a - b).matrix
        parts = 2 * value_network(model, 0, a).matrix - value_network(model, 0, b).matrix
        head = value_network(model, 0, torch.eye(4, dtype=torch.float64)[2]).matrix
    torch.testing.assert_close(total, parts)
    attention = model.blocks[0].attn
    torch.testing.assert_close(head, (attention.W_V[2] @ attention.W_O[2]).detach())


@pytest.mark.parametrize("kind", ATTENTION_KINDS)
def test_two_ways_are_one(kind: str) -> None:
    model = HookedTransformer(with_kind(CONFIG, kind), seed=1)  # float32, in training mode
    inputs = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    seen = two_ways(model, inputs, layer=1, query=4)
    assert seen.difference <= 1e-12
    assert seen.codes.shape == (6, 4)
    assert seen.usual.abs().max() > 1e-3
    assert model.training  # left as it was
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    # Another code of one key is another output, and so are two.
    network = value_network(model.double(), 1, seen.codes + torch.eye(6, 4))
    with torch.no_grad():
        moved = network(seen.x).sum(0) + seen.bias
    assert (moved - seen.usual).abs().max() > 1e-3
    with torch.no_grad():
        _, cache = model.eval().run_with_cache(inputs[None].double())
    torch.testing.assert_close(cache["attn_out", 1][0, 4], seen.usual)


T, QUERY = 6, 4
TEXTS = torch.randint(1, 300, (3, T), generator=torch.Generator().manual_seed(0))
MODELS = ("gpt2", "llama", "neox", "qwen2", "gemma2", "text-softmax", "text-hyla", "text-linear")
LAYERS = (0, 1)


def open_model(which: str, small_models: SmallModels) -> Any:
    if which.startswith("text-"):
        return lc.load_model(which)
    return load_pretrained(small_models(which))


@pytest.mark.parametrize("which", MODELS)
def test_networks_on_their_inputs_are_the_output_of_attention(
    which: str, small_models: SmallModels
) -> None:
    model = open_model(which, small_models)
    keys = torch.arange(QUERY + 1).expand(3, -1)
    x = key_inputs(model, [(TEXTS[:2], keys[:2]), (TEXTS[2:], keys[2:])], LAYERS)
    assert x.shape == (2, QUERY + 1, 3, model.cfg.d_model)
    codes_at = {layer: f"blocks.{layer}.attn.hook_pattern" for layer in LAYERS}
    output_at = {layer: shown_output(model, layer) for layer in LAYERS}
    with torch.no_grad():
        _, seen = model.run_with_cache(TEXTS, names_filter=[*codes_at.values(),
                                                             *output_at.values()])
        for layer in LAYERS:
            codes = seen[codes_at[layer]][:, :, QUERY, :QUERY + 1].movedim(2, 0)  # [K, B, H]
            bias = model.blocks[layer].attn.b_O
            total = value_network(model, layer, codes)(x[layer]).sum(0)
            total = total if bias is None else total + bias
            output = seen[output_at[layer]][:, QUERY]
            assert output.abs().max() > 0.05
            torch.testing.assert_close(total, output, atol=2e-5, rtol=1e-4)
    assert identity_error(model, TEXTS).max() < (5e-5 if which.startswith("text-") else 1e-5)


def test_of_gemma_the_sum_comes_before_the_norm_that_follows(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gemma2"))
    names = [shown_output(model, 0), "blocks.0.ln1_post.hook_out"]
    _, seen = model.run_with_cache(TEXTS, names_filter=names)
    assert (seen[names[0]] - seen[names[1]]).abs().max() > 0.1


def test_layers_and_keys_are_in_the_order_that_is_asked_for(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gpt2"))
    keys = torch.tensor([[2, 0], [1, 3], [5, 5]])
    both = key_inputs(model, [(TEXTS, keys)], (1, 0))
    assert torch.equal(both[1:], key_inputs(model, [(TEXTS, keys)], (0,)))
    assert torch.equal(both[:, :1], key_inputs(model, [(TEXTS, keys[:, :1])], (1, 0)))
    assert torch.equal(both[:, 0, 2], both[:, 1, 2])
    assert not torch.allclose(both[:, 0, :2], both[:, 1, :2])
    # What is padded on the right is read as it is alone.
    longer = torch.cat([TEXTS, torch.full((3, 2), 7)], dim=1)
    torch.testing.assert_close(key_inputs(model, [(longer, keys)], (1, 0)), both)


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
