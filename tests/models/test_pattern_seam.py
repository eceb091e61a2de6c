"""Attention that transformers computes takes a pattern, and shows the one that was used."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from small_language_models import SmallModels
from torch import Tensor, nn
from torch.nn import functional as F

from latentcode.models.hooks import attention_layers
from latentcode.models.pattern_seam import Replacing, add_seam, with_seam
from latentcode.models.pretrained import layout, load_network, load_pretrained

DELEGATED = ("gptj", "opt", "xglm")
TOKENS = torch.randint(1, 400, (2, 6), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("architecture", DELEGATED)
@torch.no_grad()
def test_what_is_put_at_the_pattern_is_what_values_are_weighted_with(
    architecture: str, small_models: SmallModels
) -> None:
    network, _ = load_network(small_models(architecture))
    expected = network(TOKENS).logits
    model = load_pretrained(small_models(architecture))
    torch.testing.assert_close(model(TOKENS), expected, rtol=1e-4, atol=1e-5)
    expected = model(TOKENS)
    name, read = layout(model).pattern_hooks[1], {}

    def keep(activation: Tensor, hook: Any) -> None:
        read[hook.name] = activation.clone()

    def put(new: Tensor) -> Tensor:
        hooks: list[Any] = [(name, lambda pattern, hook: new.clone()), *(
            (f"blocks.1.attn.{point}", keep) for point in ("v.hook_out", "o.hook_in"))]
        return model.run_with_hooks(TOKENS, fwd_hooks=hooks)

    model.run_with_hooks(TOKENS, fwd_hooks=[(name, keep)])
    pattern = read[name]
    assert pattern.shape == (2, 4, 6, 6)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(2, 4, 6))
    assert torch.equal(put(pattern), expected)
    other = torch.rand(2, 4, 6, 6).tril().softmax(-1)
    assert (put(other) - expected).abs().max() > 1e-4
    z = torch.einsum("bhqk,bkhd->bqhd", other, read["blocks.1.attn.v.hook_out"].view(2, 6, 4, 8))
    torch.testing.assert_close(read["blocks.1.attn.o.hook_in"].reshape(2, 6, 4, 8), z)


def test_gradients_pass_through_what_is_put(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("opt"))
    scale = torch.ones(1, requires_grad=True)
    logits = model.run_with_hooks(TOKENS, fwd_hooks=[
        ("blocks.0.attn.hook_pattern", lambda pattern, hook: pattern * scale)])
    slope, = torch.autograd.grad(logits.sum(), scale)
    assert slope.abs() > 0.0


def test_a_copy_has_its_own_hooks(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("gptj"))
    again = copy.deepcopy(model)
    with torch.no_grad():
        expected = model(TOKENS)
        erased = again.run_with_hooks(TOKENS, fwd_hooks=[
            ("blocks.0.attn.hook_pattern", lambda pattern, hook: torch.zeros_like(pattern))])
        assert (erased - expected).abs().max() > 1e-4
        assert torch.equal(model(TOKENS), expected)
    attention = model.blocks[0].attn
    assert not add_seam(attention, 4)  # it has one
    assert not add_seam(load_pretrained(small_models("llama")).blocks[0].attn, 4)
    module = type(attention.original_component)
    assert with_seam(module.__mro__[1]) is module
    assert module.__name__ == "GPTJAttention"


def test_only_the_product_of_attention_is_touched() -> None:
    scores, values = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 5)

    class Sinking(nn.Module):
        """Attention with a sink, whose weight is dropped; before and after it other products."""

        def forward(self) -> tuple[Tensor, Tensor]:
            torch.matmul(values, torch.randn(5, 5))
            weights = F.softmax(F.pad(scores, (0, 1)), -1)[..., :-1]
            return torch.matmul(weights, values), F.softmax(scores, -1) @ values

    seen: list[Tensor] = []

    def double(pattern: Tensor) -> Tensor:
        seen.append(pattern)
        return 2.0 * pattern

    first, second = Sinking()()
    with Replacing(double, 3) as replacing:
        doubled, same = Sinking()()
    torch.testing.assert_close(doubled, 2.0 * first)
    assert torch.equal(same, second)
    assert len(seen) == 1
    assert replacing.used is not None
    torch.testing.assert_close(replacing.used, 2.0 * seen[0])


def test_a_hybrid_has_codes_where_it_has_attention(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("lfm2"))
    shown = layout(model)
    assert attention_layers(model) == shown.layers == (1,)
    assert shown.others == {0: "Lfm2ShortConv", 2: "Lfm2ShortConv"}
    assert list(shown.pattern_hooks) == [1]
    assert list(shown.residual_hooks) == [0, 1, 2]
    assert shown.writable
