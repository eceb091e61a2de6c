"""Attention on a GPU goes by the kernels in Triton, wherever nothing looks between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fake_cuda import CUDA, fake_cuda
from torch.utils._python_dispatch import TorchDispatchMode

from latentcode.errors import ConfigError
from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.kernels.fused import attention_by, written_out
from latentcode.models.kernels.gpu import available
from latentcode.models.transformer import HookedTransformer

pytest.importorskip("triton", reason="Triton is for Linux alone")


class _Names(TorchDispatchMode):
    """The operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **kwargs or {})


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    available._too_old.cache_clear()
    yield
    available._too_old.cache_clear()


def _trained(kind: str, **hooks: Any) -> list[str]:
    config = with_kind(ModelConfig(n_layers=2), kind)
    model = HookedTransformer(config).to(CUDA)
    x = torch.zeros(4, 6, config.d_input, device=CUDA)
    with _Names() as names, model.hooks(**hooks):
        model(x).sum().backward()
    return names.seen


@pytest.mark.parametrize("kind", ["hyla", "softmax", "linear", "hyla_softmax_rms_head"])
def test_a_training_step_calls_the_kernel_once_a_layer(kind: str) -> None:
    with fake_cuda():
        names = _trained(kind)
        assert names.count("latentcode.attention.default") == 2
        assert names.count("latentcode.attention_backward.default") == 2
        with written_out():
            assert "latentcode.attention.default" not in _trained(kind)


def test_a_hook_on_the_code_of_a_layer_has_it_written_out() -> None:
    with fake_cuda():
        names = _trained("hyla", fwd_hooks=[("blocks.1.attn.hook_pattern", lambda x, hook: x)])
        assert names.count("latentcode.attention.default") == 1
        assert "latentcode.attention.default" in _trained(
            "hyla", fwd_hooks=[("blocks.1.hook_resid_pre", lambda x, hook: x)])


def test_a_gpu_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cuda():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
        assert "latentcode.attention.default" not in _trained("hyla")
        with attention_by("triton"), pytest.raises(
                ConfigError, match=r"asked for.*capability 7\.5; expected at least 8\.0"):
            _trained("hyla")


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_cuda():
        monkeypatch.setattr(available, "_installed", lambda: False)
        with attention_by("triton"), pytest.raises(ConfigError, match="triton is not installed"):
            _trained("hyla")
