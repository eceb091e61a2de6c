"""The arithmetic of a token, counted by torch while a model computes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.flops import PEAKS, peak_flops, training_flops_per_token
from latentcode.models.kernels.fused import written_out
from latentcode.models.transformer import HookedTransformer

VECTORS = ModelConfig(d_input=7, d_output=5, n_layers=3, d_model=24, n_heads=4, d_head=6,
                      d_head_v=10, d_mlp=40, n_buckets=16, max_distance=16, attention_dropout=0.0)
TEXT = replace(VECTORS, d_input=50, d_output=50, embedding="token", readout="tied", causal=True,
               positions="rotary", feedforward="swiglu")


@pytest.mark.parametrize("config", [VECTORS, TEXT], ids=["vectors", "text"])
@pytest.mark.parametrize("kind", ["softmax", "linear", "hyla", "hyla_softmax"])
def test_what_torch_counts(kind: str, config: ModelConfig) -> None:
    config = with_kind(config, kind)
    model, n, length = HookedTransformer(config), 2, 16
    inputs = (torch.randint(50, (n, length)) if config.embedding == "token"
              else torch.randn(n, length, 7, requires_grad=True))
    with written_out(), FlopCounterMode(display=False) as counter:
        model(inputs).sum().backward()
    counted = counter.get_total_flops() / (n * length)
    assert counted == pytest.approx(training_flops_per_token(config, length), rel=0.01)


def test_peaks() -> None:
    assert peak_flops("NVIDIA H100 80GB HBM3", "bf16_mlp") == 989e12
    assert peak_flops("NVIDIA H100 PCIe", "bf16") == 756e12
    assert peak_flops("NVIDIA GeForce RTX 3090", "tf32") == 35.6e12
    assert peak_flops("NVIDIA L40S", "bf16") is None
    assert peak_flops("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16") is None
    assert peak_flops("Intel(R) Xeon(R) Processor", "float32") is None
    assert all(peaks["bf16"] >= peaks["tf32"] >= peaks["float32"] for peaks in PEAKS.values())
