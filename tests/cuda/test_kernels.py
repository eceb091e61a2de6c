"""Attention on a GPU goes by the kernels in Triton, wherever nothing looks between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fake_cuda import CUDA, fake_cuda
from fake_cuda_cases import Operators

from latentcode.errors import ConfigError
from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.kernels.fused import attention_by, written_out
from latentcode.models.kernels.gpu import available
from latentcode.models.transformer import HookedTransformer

pytest.importorskip("triton", reason="Triton is for Linux alone")


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    available._too_old.cache_clear()
    yield
    available._too_old.cache_clear()


def _trained(kind: str, **hooks: Any) -> Counter[str]:
    config = with_kind(ModelConfig(n_layers=2), kind)
    model = HookedTransformer(config).to(CUDA)
    x = torch.zeros(4, 6, config.d_input, device=CUDA)
    with Operators() as names, model.hooks(**hooks):
        model(x).sum().backward()
    return names.seen


@pytest.mark.parametrize("kind", ["hyla", "softmax", "linear", "hyla_softmax_rms_head"])
def test_a_training_step_calls_the_kernel_once_a_layer(kind: str) -> None:
    with fake_cuda():
        names = _trained(kind)
        assert names["latentcode.attention"] == 2
        assert names["latentcode.attention_backward"] == 2
        with written_out():
            assert "latentcode.attention" not in _trained(kind)


def test_a_hook_on_the_code_of_a_layer_has_it_written_out() -> None:
    with fake_cuda():
        names = _trained("hyla", fwd_hooks=[("blocks.1.attn.hook_pattern", lambda x, hook: x)])
        assert names["latentcode.attention"] == 1
        assert "latentcode.attention" in _trained(
            "hyla", fwd_hooks=[("blocks.1.hook_resid_pre", lambda x, hook: x)])


def test_a_gpu_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cuda():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
        assert "latentcode.attention" not in _trained("hyla")
        with attention_by("triton"), pytest.raises(
                ConfigError, match=r"asked for.*capability 7\.5; expected at least 8\.0"):
            _trained("hyla")


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cuda():
        monkeypatch.setattr(available, "_installed", lambda: False)
        with attention_by("triton"), pytest.raises(ConfigError, match="triton is not installed"):
            _trained("hyla")


# Not softmax: of PyTorch's own kernel the device that computes nothing sees the plain form.
@pytest.mark.parametrize("kind", ["hyla", "hyla_softmax", "linear"])
def test_memory_grows_with_the_length_and_not_with_its_square(kind: str) -> None:
    """A language model trains, and the codes of two pairs are read, at 16,384 tokens."""
    config = with_kind(ModelConfig(
        n_layers=2, d_model=64, n_heads=8, d_head=64, d_head_v=64, d_input=96, d_output=96,
        embedding="token", readout="tied", positions="rotary", causal=True,
        attention_dropout=0.0), kind)
    length = 16_384
    with fake_cuda():
        model = HookedTransformer(config).to(CUDA)
        tokens = torch.zeros(1, length, dtype=torch.long, device=CUDA)
        with Operators() as names:
            model(tokens).sum().backward()
            q = torch.zeros(1, length, 8, 64, device=CUDA)
            rows = torch.zeros(1, 2, dtype=torch.long, device=CUDA)
            assert model.layer(0).attn.code_rows(q, q, rows).shape == (1, 8, 2, length)
        # The widest are queries, keys and values, of all heads, and the sums of k v^T of chunks.
        assert length * 8 * 64 <= names.largest <= 2 * length * 8 * 64
        assert ("latentcode.attention" in names.seen) == (kind != "linear")
        with written_out(), Operators() as names:
            model(tokens)
        assert names.largest >= length**2
