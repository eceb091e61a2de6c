"""Passes that share layers: the same as whole ones, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from small_language_models import SmallModels

from latentcode.errors import ConfigError
from latentcode.models import load_pretrained
from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.patched.heads import Write, agrees, clean_heads, unshared, z_hook
from latentcode.models.patched.passes import Output, computed_by_layers
from latentcode.models.transformer import HookedTransformer

ARCHITECTURES = ("gpt2", "llama", "neox", "gemma2", "gptj", "opt", "softmax", "hyla")
TOKENS = torch.arange(24).view(3, 8) + 3
READ = torch.rand(3, 8, generator=torch.Generator().manual_seed(0)) > 0.5


def own_model(kind: str) -> HookedTransformer:
    return HookedTransformer(with_kind(ModelConfig(
        d_input=50, d_output=50, n_layers=3, d_model=32, n_heads=4, d_head=2, d_head_v=2, d_mlp=64,
        embedding="token", readout="tied", causal=True, positions="rotary", attention_dropout=0.0),
        kind))


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request: pytest.FixtureRequest, small_models: SmallModels) -> Any:
    if request.param in ("softmax", "hyla"):
        return own_model(request.param)
    return load_pretrained(small_models(request.param))


def some_passes(model: Any, z: Mapping[int, torch.Tensor]) -> list[list[Write]]:
    """Return passes that write in one layer, in the other, in both, and beside attention."""
    more = torch.linspace(-1.0, 1.0, model.cfg.d_model).expand(*TOKENS.shape, -1) ** 2
    return [[Write(0, (1,), z[0].mean((0, 1))[1])],
            [Write(1, (0, 2), torch.zeros(2, z[1].shape[-1]))],
            [Write(0, (0,), z[0][[1, 2, 0]][:, :, :1]),
             Write(1, (3,), torch.ones(z[1].shape[-1]), added=more)],
            [Write(1, added=0.1 * more)]]


def test_replayed_passes_are_those_of_whole_ones(model: Any) -> None:
    shared, whole = (clean_heads(model, TOKENS, READ, shared=same) for same in (True, False))
    close = {"rtol": 0.0, "atol": 1e-5 if computed_by_layers(model) else 0.0}
    torch.testing.assert_close(shared.logits, whole.logits, **close)
    assert not whole.shares
    torch.testing.assert_close(shared.logits, _logits(model)[READ], **close)
    passes = some_passes(model, whole.z)
    together, hooked = shared.after(passes), whole.after(passes)
    for one, replayed, by_hook in zip(passes, together, hooked, strict=True):
        assert torch.allclose(replayed, by_hook, atol=1e-5)
        assert torch.allclose(shared.after([one])[0], replayed, atol=1e-5)
        assert (by_hook - whole.logits).abs().max() > 1e-3


def test_whole_passes_are_those_of_hooks_that_write(model: Any) -> None:
    whole = clean_heads(model, TOKENS, READ, shared=False)
    value = whole.z[1].mean((0, 1))[2]

    def put(z: torch.Tensor, hook: object) -> torch.Tensor:
        z[:, :, 2] = value
        return z

    with torch.no_grad():
        expected = model.run_with_hooks(TOKENS, fwd_hooks=[(z_hook(1), put)])[READ]
    assert torch.allclose(whole.after([[Write(1, (2,), value)]])[0], expected, atol=1e-6)


def test_what_is_put_back_gives_the_same_bits(model: Any) -> None:
    shared = clean_heads(model, TOKENS, READ)
    for layer, z in shared.z.items():
        assert torch.equal(shared.after([[Write(layer, (1,), z[:, :, 1:2])]])[0], shared.logits)
    assert unshared(model) == ""


def test_a_failing_pass_leaves_the_model_as_it_was(model: Any) -> None:
    before = _logits(model)
    shared = clean_heads(model, TOKENS, READ)
    with pytest.raises(RuntimeError):
        shared.after([[Write(1, (1,), torch.zeros(1, 2, 3, 7))]])
    assert torch.equal(_logits(model), before)
    assert not any("forward" in vars(part) for block in model.blocks
                   for part in (block, block.attn))


def test_layers_that_need_more_than_the_one_below_are_not_shared() -> None:
    class Skipping(HookedTransformer):
        """Its last block adds what the first attention saw."""

    model = Skipping(own_model("softmax").config)
    seen: dict[str, torch.Tensor] = {}
    model.layer(0).attn.register_forward_hook(_note(seen))
    model.layer(2).register_forward_hook(lambda module, inputs, output: output + seen.pop("q"))
    assert "hooks sit on the model" in unshared(model)


def test_a_model_that_does_not_go_on_with_z_is_refused() -> None:
    model = own_model("softmax")
    with torch.no_grad():
        model.layer(1).attn.W_O.zero_()  # writes nothing, which a layer may
        assert not unshared(model)
        for layer in range(model.config.n_layers):
            model.layer(layer).attn.W_O.zero_()
    with pytest.raises(ConfigError, match="changes no logit of this model, in any layer"):
        unshared(model)


def test_what_a_layer_returns_is_kept_in_its_own_form() -> None:
    x, pattern = torch.ones(2), torch.zeros(3)
    for output in (x, (x, pattern, 3), [x, pattern]):
        again = Output.of(output).holding(2.0 * x)
        assert type(again) is type(output)
        if not isinstance(again, torch.Tensor):
            assert torch.equal(again[0], 2.0 * x)
            assert list(again[1:]) == [None, 3][:len(output) - 1]
    with pytest.raises(ConfigError, match="returns dict"):
        Output.of({"x": x})


def test_rounding_is_told_from_a_change() -> None:
    clean, other = torch.zeros(2, 3), torch.ones(2, 3)
    assert agrees(other + 1e-4, other, clean)
    assert not agrees(other + 1e-2, other, clean)


def _note(seen: dict[str, torch.Tensor]) -> Callable[..., None]:
    def note(module: object, inputs: object, output: torch.Tensor) -> None:
        seen["q"] = output
    return note


def _logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(TOKENS)
    return logits
