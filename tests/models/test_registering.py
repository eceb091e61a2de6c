"""Does attention that a user registers compute what it says, in every place that computes it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import latentcode as lc
from latentcode.devices import make_generator
from latentcode.errors import ArtifactError, ConfigError
from latentcode.models.attention import attention_scores, normalize, rms_head
from latentcode.models.config import ATTENTION_KINDS, NORMALIZATIONS, kind_of, own_parts
from latentcode.models.hypernetwork import two_ways
from latentcode.models.kernels.fused import Case, kernel_for
from latentcode.models.patched.sites import constrained, has_constraint
from latentcode.training import train_ensemble

pytestmark = pytest.mark.usefixtures("own_names")

HALVES = lambda config: (config.n_heads, config.d_head_v, config.d_head_v)  # noqa: E731


def own_deep(
    code: Tensor, v: Tensor, phi: Callable[[Tensor], Tensor],
    hook_hidden: Callable[[Tensor], Tensor], W_M: Tensor,
) -> Tensor:
    """Eq. 10 once more, as a user would write it."""
    first = phi(torch.einsum("...bhqk,...bkhd->...bqkd", code, v))
    mapped = torch.einsum("...bqkd,...hde->...bqkhe", first, W_M)
    hidden = hook_hidden(phi(torch.einsum("...bhqk,...bqkhe->...bqke", code, mapped)))
    return torch.einsum("...bhqk,...bqkd->...bqhd", code, hidden)


def gated(code: Tensor, v: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.einsum("...hqk,...khd->...qhd", code, v * phi(v))


def sharp(scores: Tensor) -> Tensor:
    return (2.0 * scores).softmax(dim=-1)


def copy_of_deep() -> None:
    """Register HYLA's deep value network, and all that belongs to it, under other names."""
    lc.register_normalization("my_rms", lambda scores: rms_head(scores), masked="zero",
                              renormalize=lambda code: rms_head(code))
    lc.register_nonlinearity("my_relu", lambda x: x.clamp_min(0.0))
    lc.register_value_network("my_deep", own_deep, parameters={"W_M": HALVES})
    lc.register_kind("my_kind", normalization="my_rms", value_network="my_deep",
                     nonlinearity="my_relu")


def twins(**fields: Any) -> tuple[lc.RunConfig, lc.RunConfig]:
    """Return a configuration of the copy, and that of what it is a copy of."""
    copy_of_deep()
    mine, original = (lc.preset("smoke", "logic", kind) for kind in ("my_kind", "hyla_deep"))
    return (replace(mine, model=replace(mine.model, **fields)),
            replace(original, model=replace(original.model, **fields)))


def inputs_of(config: lc.RunConfig) -> Tensor:
    return lc.make_task(config.task).sample("train", 5, make_generator(0, "inputs")).inputs


@pytest.mark.parametrize("causal", [False, True])
def test_a_copy_of_a_kind_has_its_numbers_at_every_hook(causal: bool) -> None:
    configs = twins(causal=causal)
    inputs = inputs_of(configs[0])
    models = [lc.HookedTransformer(config.model, seed=3).eval() for config in configs]
    (mine, seen), (original, wanted) = (model.run_with_cache(inputs) for model in models)
    assert list(seen) == list(wanted)
    assert "blocks.1.attn.hook_value_hidden" in seen
    torch.testing.assert_close(mine, original)
    for name in seen:
        torch.testing.assert_close(seen[name], wanted[name])
    parts = [model(inputs, read=1) for model in models]
    torch.testing.assert_close(*parts)
    torch.testing.assert_close(parts[0], mine[:, -1:])
    query = torch.full((5, 1), 4)
    layer = models[0].layer(1).attn
    torch.testing.assert_close(
        layer.code_rows(seen["q", 1], seen["k", 1], query)[:, :, 0], seen["pattern", 1][:, :, 4])
    silenced = models[0].run_with_hooks(inputs, fwd_hooks=[
        ("blocks.1.attn.hook_value_hidden", lambda x, hook: torch.zeros_like(x))])
    assert not torch.allclose(silenced, mine)


def test_members_of_an_ensemble_are_the_models_alone() -> None:
    config, _ = twins()
    inputs = torch.stack([inputs_of(config)] * 2)
    together = lc.HookedTransformer(config.model, seed=(1, 2)).eval()(inputs)
    for member, seed in enumerate((1, 2)):
        alone = lc.HookedTransformer(config.model, seed=seed).eval()(inputs[member])
        torch.testing.assert_close(together[member], alone)


@pytest.mark.slow
def test_training_and_ensembles_are_those_of_the_original(tmp_path: Path) -> None:
    configs = twins(attention_dropout=0.2)
    weights = []
    for name, config in zip(("mine", "original"), configs, strict=True):
        training = replace(config.training, steps=6, eval_every=6, checkpoint_every=6,
                           warmup_steps=0)
        config = replace(config, training=training)
        other = replace(config, training=replace(training, seed=1))
        alone = lc.train(config, tmp_path / f"{name} alone",
                         progress=False)
        together = train_ensemble(
            {tmp_path / f"{name} {i}": c for i, c in enumerate((config, other))}, progress=False)
        weights.append([list(run.load_model().parameters()) for run in (alone, *together.values())])
        assert own_parts(alone.config.model) == ({
            "normalization": "my_rms", "value_network": "my_deep", "nonlinearity": "my_relu"}
            if name == "mine" else {})
    for mine, original in zip(*weights, strict=True):
        for x, y in zip(mine, original, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-5)
    for x, y in zip(*weights[0][:2], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-5)


def test_the_kernel_steps_aside() -> None:
    lc.register_normalization("my_softmax", lambda scores: scores.softmax(-1))
    lc.register_nonlinearity("square", torch.square)
    lc.register_value_network("gated", gated)
    hyla = lc.ModelConfig()
    assert kernel_for(Case.of_training(hyla, "cpu", torch.float32, 8)) == "cpu"
    for field, name in (("normalization", "my_softmax"), ("nonlinearity", "square"),
                        ("value_network", "gated")):
        own = replace(hyla, **{field: name})
        assert kernel_for(Case.of_training(own, "cpu", torch.float32, 8)) == "plain"


def test_a_run_is_opened_where_its_names_are_registered(tmp_path: Path) -> None:
    lc.register_normalization("sharp", sharp)
    lc.register_kind("sharp_hyla", normalization="sharp", value_network="hyla",
                     nonlinearity="relu")
    config = lc.preset("smoke", "logic", "sharp_hyla")
    training = replace(config.training, steps=2, eval_every=2, checkpoint_every=2, warmup_steps=0)
    run = lc.train(replace(config, training=training), tmp_path / "run", progress=False)
    assert "sharp_hyla on logic" in repr(lc.load_run(run.path))
    assert lc.extract(run, split="ood", n=4).meta["kind"] == "sharp_hyla"
    del ATTENTION_KINDS._values["sharp_hyla"]  # labels alone need the kind
    assert "sharp/hyla/relu on logic" in repr(lc.load_run(run.path))
    del NORMALIZATIONS._values["sharp"]
    with pytest.raises(ConfigError, match=r"run has normalization 'sharp', which is not registered "
                       r"here; expected `import tests\.models\.test_registering` first, or "
                       r"--import tests"):
        lc.load_run(run.path)
    with pytest.raises(ConfigError, match=r"one of your own is registered with lc\.register_norm"):
        replace(config.model, n_layers=1)


def test_value_networks_of_registered_names() -> None:
    lc.register_normalization("sharp", sharp)
    lc.register_nonlinearity("square", torch.square)
    config = replace(lc.preset("smoke", "logic", "hyla"))
    config = replace(config, model=replace(config.model, normalization="sharp",
                                           nonlinearity="square"))
    inputs = inputs_of(config)[0]
    for network in ("linear", "hyla", "deep"):
        model = lc.HookedTransformer(replace(config.model, value_network=network), seed=1)
        assert two_ways(model, inputs, 1, 3).difference < 1e-12
    lc.register_value_network("gated", gated)
    model = lc.HookedTransformer(replace(config.model, value_network="gated"))
    with pytest.raises(ConfigError, match=r"'gated' was registered as a function.*not known"):
        lc.value_network(model, 0, torch.zeros(4))


def test_written_codes_are_renormalised_as_was_registered() -> None:
    code = torch.rand(3, 4, 5, 7, generator=torch.Generator().manual_seed(0))
    scope = torch.zeros(3, 5, 7, dtype=torch.bool)
    scope[0, 1, 2] = True
    lc.register_normalization("sharp", sharp)
    assert not has_constraint("sharp")
    with pytest.raises(ConfigError, match=r"'sharp', whose codes obey.*renormalize="):
        constrained(code, scope, "sharp")
    lc.register_normalization("sharp", sharp, renormalize=lambda code: code / code.sum(
        -1, keepdim=True), replace=True)
    out = constrained(code, scope, "sharp")
    torch.testing.assert_close(out[0, :, 1].sum(-1), torch.ones(4))
    out[0, :, 1] = code[0, :, 1]
    assert torch.equal(out, code)


def test_a_parameter_of_one_axis_is_drawn_like_any_other() -> None:
    def scaled(
        code: Tensor, v: Tensor, phi: Callable[[Tensor], Tensor], W_G: Tensor
    ) -> Tensor:  # [*E, d] beside [*E, B, Q, H, d]
        z = torch.einsum("...hqk,...khd->...qhd", code, phi(v))
        return z * W_G[..., None, None, None, :]

    lc.register_value_network("scaled", scaled,
                              parameters={"W_G": lambda config: (config.d_head_v,)})
    config = replace(lc.preset("smoke").model, value_network="scaled")
    weight = lc.HookedTransformer(config, seed=0).blocks[0].attn.W_G
    assert weight.shape == (config.d_head_v,)
    assert float(weight.detach().std()) > 0.0


def test_a_kind_is_a_name_for_its_fields() -> None:
    lc.register_normalization("sharp", sharp)
    fields = {"normalization": "sharp", "value_network": "linear"}
    lc.register_kind("sharp_linear", **fields)
    lc.register_kind("sharp_moe", **fields, feedforward="moe")
    for kind in ("sharp_linear", "sharp_moe", "softmax"):
        assert kind_of(lc.preset("smoke", "sraven", kind).model) == kind
    assert ATTENTION_KINDS.file("sharp_moe") == "tests.models.test_registering"
    lc.register_kind("sharp_moe", **fields, feedforward="moe", replace=True)
    other = {"normalization": "sharp", "value_network": "hyla"}
    for name, message, bad in (
        ("again", "has the fields of 'sharp_linear'", fields),
        ("blunt", "unknown normalization 'blunt'", {**fields, "normalization": "blunt"}),
        ("sharp_moe", "registered already", other), ("hyla", "comes with latentcode", other),
    ):
        with pytest.raises(ConfigError, match=message):
            lc.register_kind(name, **bad)


UNFIT: dict[str, list[tuple[Any, dict[str, Any], str]]] = {
    "normalization": [
        (3, {}, "is 3"), (nn.Linear(7, 7), {}, "module with parameters"),
        (lambda scores: scores[..., :1], {}, r"shape \[2, 3, 4, 5, 1\]"),
        (lambda scores: scores.double(), {}, r"torch\.float64"),
        (lambda scores: scores.numpy(), {}, "ndarray"), (lambda scores: scores.log(), {}, "NaN"),
        (lambda scores: scores @ torch.zeros(2, 2), {}, "RuntimeError"),
        (lambda scores: scores.mul_(2.0), {}, "changes what it is given"),
        (torch.sigmoid, {"masked": "zero"}, r"codes up to 0\.5"),
        (lambda scores: 2 * scores, {}, "infinite"), (sharp, {"masked": "-inf"}, "masked"),
        (sharp, {"renormalize": lambda code: code / 0.0}, "renormalize")],
    "nonlinearity": [
        (nn.PReLU(), {}, "module with parameters"), (lambda x: x.sum(), {}, "shape"),
        (torch.log, {}, "NaN or infinite")],
    "value_network": [
        (gated, {"parameters": {"W_Q": HALVES}}, "W_Q"),
        (gated, {"parameters": {"gate": HALVES}}, "gate"),
        (gated, {"parameters": {"W_G": HALVES}}, "unexpected keyword argument 'W_G'"),
        (own_deep, {}, "missing 1 required positional argument: 'W_M'"),
        (own_deep, {"parameters": {"W_M": lambda config: config.width}}, "W_M"),
        (lambda code, v, phi: torch.einsum("...hqk,...khd->...hqd", code, v), {}, "shape")]}
"""What is registered -> function, settings, and what the error names."""


@pytest.mark.parametrize(("what", "fn", "settings", "named"), [
    (what, *case) for what, cases in UNFIT.items() for case in cases])
def test_what_does_not_fit_is_refused(
    what: str, fn: Any, settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        getattr(lc, f"register_{what}")("own", fn, **settings)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="'own'"):
        replace(lc.ModelConfig(), **{what: "own"})


def test_a_normalisation_without_masks_is_refused_where_there_are_some() -> None:
    lc.register_normalization("spread", torch.cosh, masked=None)
    q = torch.zeros(1, 2, 1, 2)
    mask = torch.ones(1, 1, 2, 2, dtype=torch.bool)
    assert normalize(attention_scores(q, q, None, None, "spread"), "spread").eq(1.0).all()
    with pytest.raises(ConfigError, match="'spread' was registered with masked=None; expected no"):
        attention_scores(q, q, None, mask, "spread")
    with pytest.raises(ConfigError, match=r"model\.causal is True; expected False"):
        lc.ModelConfig(normalization="spread", causal=True)


def test_weights_of_a_changed_value_network_are_named(tmp_path: Path) -> None:
    """A run whose value network has other parameters by now does not open with wrong ones."""
    lc.register_value_network("own", own_deep, parameters={"W_M": HALVES})
    config = lc.preset("smoke", "logic", "hyla")
    config = replace(config, model=replace(config.model, value_network="own"),
                     training=replace(config.training, steps=2, warmup_steps=0, eval_every=2))
    run = lc.train(config, tmp_path / "run", progress=False)
    lc.register_value_network("own", gated, replace=True)
    with pytest.raises(ArtifactError, match="W_M"):
        run.load_model()
