"""Small models in float64 whose every weight matters, and instances for them."""

from __future__ import annotations

import torch
from torch import Tensor

from latentcode.models.config import ModelConfig
from latentcode.models.transformer import HookedTransformer

TINY = ModelConfig(d_input=5, d_output=3, d_model=12, n_heads=4, d_head=2, d_head_v=3, d_mlp=8,
                   n_buckets=6, max_distance=6, n_experts=3)


def model_and_inputs(config: ModelConfig) -> tuple[HookedTransformer, Tensor]:
    """A model in float64 whose biases and LayerNorms matter, and three instances."""
    draw = torch.Generator().manual_seed(2)
    model = HookedTransformer(config, seed=1).double().eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=draw).double()
    if config.embedding == "token":
        return model, torch.randint(config.d_input, (3, 6), generator=draw)
    return model, torch.randn(3, 6, config.d_input, generator=draw).double()


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-11)
