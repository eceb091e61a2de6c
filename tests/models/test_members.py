"""An ensemble that is computed together equals its members, each alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from latentcode.models import blocks
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, with_kind
from latentcode.models.transformer import HookedTransformer

SMALL = ModelConfig(
    d_input=5, d_output=3, n_layers=2, d_model=12, n_heads=4, d_head=2, d_head_v=3, d_mlp=7,
    n_buckets=6, max_distance=6, n_experts=3, top_k=2, attention_dropout=0.25)
SEEDS = (3, 0, 7)
OTHERS = {
    "rotary causal": replace(SMALL, positions="rotary", causal=True),
    "no positions": replace(SMALL, positions="none"),
    "swiglu": replace(SMALL, feedforward="swiglu"),
    "independent": replace(SMALL, attention_dropout_form="independent"),
    "tied tokens": replace(SMALL, d_output=5, embedding="token", readout="tied"),
    "cross": replace(SMALL, cross_attention=True),
}
CONFIGS = {kind: with_kind(SMALL, kind) for kind in ATTENTION_KINDS} | OTHERS


def _generators() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in SEEDS]


def _inputs(config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor | None]:
    draw = torch.Generator().manual_seed(1)
    context = None
    if config.cross_attention:
        context = torch.randn(len(SEEDS), 4, 5, config.d_model, generator=draw).double()
    if config.embedding == "token":
        return torch.randint(config.d_input, (len(SEEDS), 4, 6), generator=draw), context
    return torch.randn(len(SEEDS), 4, 6, config.d_input, generator=draw).double(), context


@pytest.mark.parametrize("name", CONFIGS)
def test_an_ensemble_is_its_members(name: str) -> None:
    config = CONFIGS[name]
    inputs, context = _inputs(config)
    together = HookedTransformer(config, seed=SEEDS).double().train()
    logits = together(inputs, context=context, generator=_generators())
    weight = torch.randn(logits.shape[1:], generator=torch.Generator().manual_seed(2)).double()
    (logits * weight).sum().backward()
    gradients = dict(together.named_parameters())
    for index, (seed, generator) in enumerate(zip(SEEDS, _generators(), strict=True)):
        alone = HookedTransformer(config, seed=seed).double().train()
        own = alone(inputs[index], context=None if context is None else context[index],
                    generator=generator)
        torch.testing.assert_close(logits[index], own, rtol=1e-11, atol=1e-12)
        (own * weight).sum().backward()
        for parameter, value in alone.named_parameters():
            assert torch.equal(gradients[parameter].data[index], value.data)
            torch.testing.assert_close(gradients[parameter].grad[index], value.grad,
                                       rtol=1e-10, atol=1e-11)


@pytest.mark.slow
def test_one_member_on_a_gpu_computes_as_a_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_is_one_on_gpu", lambda w: len(w) == 1)
    inputs = _inputs(SMALL)[0][:1].float()
    results = []
    for seed, x in ((SEEDS[0], inputs[0]), (SEEDS[:1], inputs)):
        model = HookedTransformer(SMALL, seed=seed).train()
        logits = model(x, generator=_generators()[:1] if isinstance(seed, tuple) else
                       _generators()[0])
        results.append([logits, *torch.autograd.grad(logits.square().sum(), model.parameters())])
    assert all(torch.equal(own, one[0]) for own, one in zip(*results, strict=True))


def test_hooks_see_and_write_the_codes_of_every_member() -> None:
    config = replace(SMALL, attention_dropout=0.0)
    inputs, _ = _inputs(config)
    together = HookedTransformer(config, seed=SEEDS).double().eval()
    _, cache = together.run_with_cache(inputs)
    alone = HookedTransformer(config, seed=SEEDS[1]).double().eval()
    _, own = alone.run_with_cache(inputs[1])
    for layer in range(config.n_layers):
        torch.testing.assert_close(cache["pattern", layer][1], own["pattern", layer])

    def silence_the_first(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        pattern[0] = 0.0
        return pattern

    hooks = [("blocks.0.attn.hook_pattern", silence_the_first)]
    logits = together.run_with_hooks(
        inputs, fwd_hooks=[("blocks.0.attn.hook_pattern", lambda pattern, hook: None)])
    written = together.run_with_hooks(inputs, fwd_hooks=hooks)
    assert not torch.allclose(written[0], logits[0])
    assert torch.equal(written[1:], logits[1:])
