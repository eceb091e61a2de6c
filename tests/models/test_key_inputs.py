"""Value networks on the inputs at their keys add up to what attention puts out, in any model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_language_models import SmallModels

import latentcode as lc
from latentcode.models.hypernetwork import identity_error, key_inputs, shown_output, value_network
from latentcode.models.pretrained import load_pretrained

T, QUERY = 6, 4
TOKENS = torch.randint(1, 300, (3, T), generator=torch.Generator().manual_seed(0))
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
    x = key_inputs(model, [(TOKENS[:2], keys[:2]), (TOKENS[2:], keys[2:])], LAYERS)
    assert x.shape == (2, QUERY + 1, 3, model.cfg.d_model)
    codes_at = {layer: f"blocks.{layer}.attn.hook_pattern" for layer in LAYERS}
    output_at = {layer: shown_output(model, layer) for layer in LAYERS}
    with torch.no_grad():
        _, seen = model.run_with_cache(TOKENS, names_filter=[*codes_at.values(),
                                                             *output_at.values()])
        for layer in LAYERS:
            codes = seen[codes_at[layer]][:, :, QUERY, :QUERY + 1].movedim(2, 0)  # [K, B, H]
            bias = model.blocks[layer].attn.b_O
            total = value_network(model, layer, codes)(x[layer]).sum(0)
            total = total if bias is None else total + bias
            output = seen[output_at[layer]][:, QUERY]
            assert output.abs().max() > 0.05
            torch.testing.assert_close(total, output, atol=2e-5, rtol=1e-4)
    assert identity_error(model, TOKENS).max() < (5e-5 if which.startswith("text-") else 1e-5)


def test_of_gemma_the_sum_comes_before_the_norm_that_follows(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gemma2"))
    names = [shown_output(model, 0), "blocks.0.ln1_post.hook_out"]
    _, seen = model.run_with_cache(TOKENS, names_filter=names)
    assert (seen[names[0]] - seen[names[1]]).abs().max() > 0.1


def test_layers_and_keys_are_in_the_order_that_is_asked_for(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gpt2"))
    keys = torch.tensor([[2, 0], [1, 3], [5, 5]])
    both = key_inputs(model, [(TOKENS, keys)], (1, 0))
    assert torch.equal(both[1:], key_inputs(model, [(TOKENS, keys)], (0,)))
    assert torch.equal(both[:, :1], key_inputs(model, [(TOKENS, keys[:, :1])], (1, 0)))
    assert torch.equal(both[:, 0, 2], both[:, 1, 2])
    assert not torch.allclose(both[:, 0, :2], both[:, 1, :2])
    # What is padded on the right is read as it is alone.
    longer = torch.cat([TOKENS, torch.full((3, 2), 7)], dim=1)
    torch.testing.assert_close(key_inputs(model, [(longer, keys)], (1, 0)), both)
