"""Eq. 2 = Eq. 5: a layer's output equals the sum of its generated value networks."""

from dataclasses import replace

import pytest
import torch

from latentcode.models.config import ATTENTION_KINDS, ModelConfig, with_kind
from latentcode.models.hypernetwork import two_ways, value_network
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
