"""The hooked transformer: sizes, hooks under TransformerLens' names, writes, masks, initial law."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from latentcode.errors import ConfigError, UnknownNameError
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, kind_of, with_kind
from latentcode.models.kernels.fused import written_out
from latentcode.models.transformer import HookedTransformer

TINY = ModelConfig(d_input=5, d_output=3, d_model=16, n_heads=4, d_head=2, d_head_v=3, d_mlp=24,
                   n_buckets=6, max_distance=6)
LANGUAGE = replace(TINY, embedding="token", readout="tied", d_input=11, d_output=11, causal=True,
                   feedforward="swiglu", positions="rotary")


def _inputs(config: ModelConfig, batch: int = 3, length: int = 6, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if config.embedding == "token":
        return torch.randint(config.d_input, (batch, length), generator=generator)
    return torch.randn(batch, length, config.d_input, generator=generator)


def _variants() -> Iterator[tuple[str, ModelConfig]]:
    """One layer of every kind; two of a language model."""
    for kind in ATTENTION_KINDS:
        yield kind, replace(with_kind(TINY, kind), n_layers=1)
    yield "language", LANGUAGE
    yield "cross", replace(TINY, cross_attention=True, n_layers=1)


def test_parameter_counts_are_the_official_ones() -> None:
    logic = ModelConfig()
    sraven = ModelConfig(d_input=8, d_output=8, n_layers=4, n_heads=16, d_head=4, d_head_v=4,
                         n_buckets=36, max_distance=36)
    for kind in ("softmax", "linear", "hyla"):
        assert HookedTransformer(with_kind(logic, kind)).n_parameters == 151_265
        assert HookedTransformer(with_kind(sraven, kind)).n_parameters == 402_824


def test_run_with_cache_speaks_transformer_lens() -> None:
    model = HookedTransformer(TINY).eval()
    logits, cache = model.run_with_cache(_inputs(TINY))
    assert logits.shape == (3, 6, 3)
    for name, shape in {
        "blocks.1.attn.hook_q": (3, 6, 4, 2), "blocks.1.attn.hook_k": (3, 6, 4, 2),
        "blocks.1.attn.hook_v": (3, 6, 4, 3), "blocks.1.attn.hook_attn_scores": (3, 4, 6, 6),
        "blocks.1.attn.hook_pattern": (3, 4, 6, 6), "blocks.1.attn.hook_z": (3, 6, 4, 3),
        "blocks.1.hook_resid_pre": (3, 6, 16), "blocks.1.hook_resid_mid": (3, 6, 16),
        "blocks.1.hook_resid_post": (3, 6, 16), "blocks.1.mlp.hook_pre": (3, 6, 24),
        "blocks.1.mlp.hook_post": (3, 6, 24), "ln_final.hook_normalized": (3, 6, 16),
        "hook_embed": (3, 6, 16),
    }.items():
        assert cache[name].shape == shape, name
    assert torch.equal(cache["pattern", 1], cache["blocks.1.attn.hook_pattern"])
    _, plain = model.run_with_cache(_inputs(TINY), return_cache_object=False)
    assert isinstance(plain, dict)


UNFUSED = (".ln", "hook_attn_scores", "hook_pattern", "hook_value_hidden")
"""Hooks whose use takes a written-out path, which rounds in other places than the fused one."""


@pytest.mark.parametrize(("name", "config"), list(_variants()), ids=lambda v: str(v)[:30])
def test_every_hook_point_reads_and_writes(name: str, config: ModelConfig) -> None:
    """The identity patch leaves the logits bit-equal, a random patch changes them."""
    model = HookedTransformer(config, seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():  # biases and tables too must matter
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    inputs = _inputs(config)
    kwargs = ({"context": torch.randn(3, 4, config.d_model, generator=generator)}
              if config.cross_attention else {})
    with torch.no_grad():
        plain = model(inputs, **kwargs)
    silent = []
    for hook in model.hook_dict:
        def keep(x: torch.Tensor, hook: object) -> torch.Tensor:
            return x.clone()

        def randomize(x: torch.Tensor, hook: object) -> torch.Tensor:
            noise = torch.Generator().manual_seed(3)
            return x + torch.rand(x.shape, generator=noise) + 0.5

        with torch.no_grad():
            # Reading a hook is the unpatched, hooked path.
            read = model.run_with_hooks(inputs, fwd_hooks=[(hook, lambda x, hook: None)], **kwargs)
            same = model.run_with_hooks(inputs, fwd_hooks=[(hook, keep)], **kwargs)
            changed = model.run_with_hooks(inputs, fwd_hooks=[(hook, randomize)], **kwargs)
        assert torch.equal(read, same), hook
        torch.testing.assert_close(plain, read, atol=1e-5, rtol=1e-5)
        if not any(part in f".{hook}" for part in UNFUSED):
            assert torch.equal(plain, read), hook
        if torch.equal(read, changed):
            silent.append(hook)
    assert not silent


def test_a_patched_code_reaches_the_value_network_of_its_query_only() -> None:
    model = HookedTransformer(replace(TINY, n_layers=1)).eval()

    def patch(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        pattern[:, :, 2, 4] = 3.0
        return pattern

    with torch.no_grad():
        before, after = (model.run_with_hooks(
            _inputs(TINY), fwd_hooks=[("blocks.0.attn.hook_pattern", hook)])
            for hook in (lambda pattern, hook: None, patch))
    changed = (before != after).any(dim=-1)
    assert changed[:, 2].all()
    assert not changed[:, [0, 1, 3, 4, 5]].any()


@pytest.mark.parametrize("kind", ATTENTION_KINDS)
def test_causal_models_do_not_look_ahead(kind: str) -> None:
    config = replace(with_kind(TINY, kind), causal=True)
    model = HookedTransformer(config).eval()
    inputs = _inputs(config)
    other = inputs.clone()
    other[:, 4:] += 1.0
    with torch.no_grad():
        a, b = model(inputs), model(other)
    torch.testing.assert_close(a[:, :4], b[:, :4])
    assert not torch.allclose(a[:, 4:], b[:, 4:])


def test_a_mask_hides_keys() -> None:
    model = HookedTransformer(TINY).eval()
    inputs = _inputs(TINY)
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 5] = False
    other = inputs.clone()
    other[:, 5] += 1.0
    with torch.no_grad():
        a, b = model(inputs, mask=mask), model(other, mask=mask)
    torch.testing.assert_close(a[:, :5], b[:, :5])


def test_cross_attention_reads_the_context() -> None:
    config = replace(TINY, cross_attention=True)
    model = HookedTransformer(config).eval()
    context = torch.randn(3, 4, config.d_model)
    with torch.no_grad():
        _, cache = model.run_with_cache(_inputs(config), context=context)
        a = model(_inputs(config), context=context)
        b = model(_inputs(config), context=context + 1.0)
    assert cache["blocks.0.cross_attn.hook_pattern"].shape == (3, 4, 6, 4)
    assert not torch.allclose(a, b)
    with pytest.raises(ConfigError, match="context is missing"):
        model(_inputs(config))
    with pytest.raises(ConfigError, match="context is given"):
        HookedTransformer(TINY)(_inputs(TINY), context=context)


def test_mixture_of_experts_uses_the_top_two() -> None:
    config = with_kind(TINY, "hyla_moe")
    layer = HookedTransformer(config, seed=3).blocks[0].mlp.double()
    x = torch.randn(2, 3, config.d_model, dtype=torch.float64)
    y = layer(x)
    for b in range(2):
        for t in range(3):
            gates = x[b, t] @ layer.W_gate
            top = gates.topk(2)
            wanted = sum(
                weight * torch.nn.functional.gelu(x[b, t] @ layer.W_in[i], approximate="tanh")
                @ layer.W_out[i]
                for weight, i in zip(top.values.softmax(0), top.indices, strict=True))
            torch.testing.assert_close(y[b, t], wanted)


def test_dropout_acts_in_training_only_and_is_reproducible() -> None:
    model = HookedTransformer(replace(TINY, attention_dropout=0.5))
    inputs = _inputs(TINY)
    draws = [model(inputs, generator=torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    model.eval()
    assert torch.equal(model(inputs, generator=torch.Generator().manual_seed(0)), model(inputs))


@pytest.mark.parametrize("kind", ["hyla", "hyla_deep", "softmax_moe"])
def test_initial_weights_follow_the_official_law(kind: str) -> None:
    """Variances 1 / fan_in: LeCun kernels cut at two sigma, untruncated tables, zero biases."""
    config = with_kind(ModelConfig(d_model=256, n_heads=8, d_head=16, d_head_v=16, d_mlp=512,
                                   d_input=64, d_output=64, n_buckets=64, max_distance=64), kind)
    model = HookedTransformer(config, seed=0)
    fan_in = {"W_Q": 256, "W_K": 256, "W_V": 256, "W_O": 128, "W_V2": 128, "W_in": 256,
              "W_out": 512, "W_gate": 256, "W_E": 64, "W_U": 256}
    for name, parameter in model.named_parameters():
        p = parameter.detach()
        leaf = name.rpartition(".")[2]
        if leaf in fan_in:
            sigma = fan_in[leaf] ** -0.5
            # The standard error of a sample variance is sqrt(2 / n); five of them.
            tolerance = 5 * (2 / p.numel()) ** 0.5
            assert float(p.var() / sigma**2) == pytest.approx(1.0, abs=tolerance), name
            assert float(p.abs().max()) <= 2 * sigma / 0.8796 * 1.0001, name
        elif leaf == "rel_pos_bias":
            assert float(p.var() * 64) == pytest.approx(1.0, abs=5 * (2 / p.numel()) ** 0.5)
            assert float(p.abs().max()) > 2.3 / 64**0.5  # not truncated
        elif leaf == "w":
            assert (p == 1).all()
        else:
            assert (p == 0).all(), name


def test_weights_depend_on_the_seed_alone() -> None:
    a, b, c = (HookedTransformer(TINY, seed=s) for s in (4, 4, 5))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.blocks[0].attn.W_Q, c.blocks[0].attn.W_Q)


def test_kinds_are_named_and_found_again() -> None:
    for kind in ATTENTION_KINDS:
        assert kind_of(with_kind(TINY, kind)) == kind
    assert kind_of(replace(TINY, nonlinearity="tanh")) == "rms_head/hyla/tanh"
    with pytest.raises(UnknownNameError, match="attention kind 'hylla'; expected one of: softmax"):
        with_kind(TINY, "hylla")


@pytest.mark.parametrize("point", ["hook_attn_scores", "hook_pattern", "hook_value_hidden"])
def test_a_hook_of_torch_itself_is_not_passed_over(point: str) -> None:
    model = HookedTransformer(with_kind(TINY, "hyla"), seed=1).eval()
    inputs = _inputs(TINY)
    with torch.no_grad():
        before = model(inputs)
        handle = model.get_submodule(f"blocks.0.attn.{point}").register_forward_hook(
            lambda module, arguments, output: torch.zeros_like(output))
        silenced = model(inputs)
        handle.remove()
        assert not torch.allclose(silenced, before)
        assert torch.equal(model(inputs), before)


def test_looking_first_in_inference_mode_does_not_spoil_training() -> None:
    # A bias that no other test has asked for; features of a head that others train too.
    config = replace(TINY, n_buckets=5, max_distance=5, d_head_v=2)
    model = HookedTransformer(config)
    with torch.inference_mode():
        model(_inputs(config))
    model(_inputs(config)).sum().backward()
    assert model.layer(0).attn.rel_pos_bias.grad is not None


@pytest.mark.slow
def test_what_the_kernel_has_no_rule_for_can_be_written_out() -> None:
    model = HookedTransformer(with_kind(TINY, "softmax")).double().eval()
    inputs = _inputs(TINY).double()
    weights = dict(model.named_parameters())

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (inputs,)).square().sum()

    wanted = torch.autograd.grad(loss(weights), list(weights.values()))
    for own, other in zip(torch.func.grad(loss)(weights).values(), wanted, strict=True):
        torch.testing.assert_close(own, other)
    with written_out():
        first = torch.autograd.grad(loss(weights), model.embed.W_E, create_graph=True)[0]
        second = torch.autograd.grad(first.sum(), model.embed.W_E)[0]
    assert second.abs().sum() > 0
