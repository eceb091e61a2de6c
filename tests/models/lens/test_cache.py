"""What the cache sums to: the residual stream and the logits; where it would not, it refuses."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest
import torch
from small_lens import TINY, assert_same, model_and_inputs
from torch import Tensor

from latentcode.errors import ConfigError, MissingMemberError
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, with_kind
from latentcode.models.lens import LensCache, why_heads_mix
from latentcode.models.transformer import HookedTransformer

CONFIGS = {**{kind: with_kind(TINY, kind) for kind in ATTENTION_KINDS},
           "swiglu": replace(with_kind(TINY, "softmax"), feedforward="swiglu", positions="rotary"),
           "tied": replace(with_kind(TINY, "softmax"), embedding="token", readout="tied",
                           d_input=7, d_output=7, causal=True)}
OWN_HEADS = {"softmax", "linear", "softmax_moe", "linear_moe", "swiglu", "tied"}
"""Kinds whose heads work each by itself."""


def run(config: ModelConfig) -> tuple[HookedTransformer, Tensor, LensCache]:
    model, inputs = model_and_inputs(config)
    with torch.no_grad():
        logits, cache = model.run_with_cache(inputs)
    return model, logits, cache


@pytest.mark.parametrize("name", CONFIGS)
def test_parts_sum_to_the_residual_stream_and_the_logits(name: str) -> None:
    model, logits, cache = run(CONFIGS[name])
    assert_same(cache.decompose_resid().sum(0), cache["resid_post", -1])
    assert_same(cache.decompose_resid(1).sum(0), cache["resid_pre", 1])
    assert_same(cache.decompose_resid(1, mlp_input=True).sum(0), cache["resid_mid", 1])
    normalized = cache.decompose_resid(1, mlp_input=True, apply_ln=True)
    assert_same(normalized.sum(0), cache["normalized", 1, "ln2"])
    constant = model.ln_final.b @ model.W_U + model.b_U
    for token in range(model.config.d_output):
        attributed = cache.logit_attrs(cache.decompose_resid(), token).sum(0)
        assert_same(attributed + constant[token], logits[..., token])
    streams, labels = cache.accumulated_resid(incl_mid=True, apply_ln=True, return_labels=True)
    assert labels == ["0_pre", "0_mid", "1_pre", "1_mid", "final_post"]
    assert_same(streams[-1] @ model.W_U + model.b_U, logits)
    pairs = torch.tensor([0, 1, 2])
    difference = cache.logit_attrs(cache.decompose_resid(pos_slice=-1), pairs, pairs.flip(0),
                                   pos_slice=-1)
    at = torch.arange(3)
    assert_same(difference.sum(0) + constant[pairs] - constant[pairs.flip(0)],
                logits[at, -1, pairs] - logits[at, -1, pairs.flip(0)])


@pytest.mark.parametrize("name", CONFIGS)
def test_heads_are_stacked_only_where_each_works_by_itself(name: str) -> None:
    model, _, cache = run(CONFIGS[name])
    # The sum over heads is the layer's output for every kind; what a term means is the question.
    terms = torch.einsum("bqhd,hde->bqhe", cache["z", 1], model.W_O[1])
    assert_same(terms.sum(2) + model.b_O[1], cache["attn_out", 1])
    neurons = model.config.feedforward != "moe"
    if name in OWN_HEADS:
        heads, labels = cache.stack_head_results(return_labels=True, incl_remainder=True)
        assert labels == [*model.all_head_labels, "remainder"]
        assert_same(heads[:4].sum(0) + model.b_O[0], cache["attn_out", 0])
        assert_same(heads.sum(0), cache["resid_post", -1])
        for layer, mlp_input, stream in (
                (2, False, ("resid_post", 1)), (1, True, ("resid_mid", 1))):
            for expand in {False, neurons}:
                parts = cache.get_full_resid_decomposition(
                    layer, mlp_input=mlp_input, expand_neurons=expand)
                assert_same(parts.sum(0), cache[stream])
    else:
        for method in (cache.stack_head_results, cache.compute_head_results,
                       cache.get_full_resid_decomposition,
                       cache.apply_slice_to_batch_dim(0).stack_head_results):
            with pytest.raises(ConfigError, match=rf"^cache\.{method.__name__}: .* all heads"):
                method()
    if neurons:
        outputs = cache.stack_neuron_results(-1, incl_remainder=True)
        assert_same(outputs.sum(0), cache["resid_post", -1])
        assert_same(cache.get_neuron_results(1).sum(-2) + model.b_out[1], cache["mlp_out", 1])
    else:
        for count in (lambda: cache.stack_neuron_results(-1), lambda: cache.get_neuron_results(0)):
            with pytest.raises(ConfigError, match="experts count by their gate"):
                count()


def test_kinds_of_a_users_own_are_not_trusted_to_keep_heads_apart() -> None:
    plain = with_kind(TINY, "softmax")
    assert why_heads_mix(plain) == ""
    for field in ("normalization", "value_network"):
        own = copy(plain)
        object.__setattr__(own, field, "mine")
        assert why_heads_mix(own) == "'mine' is not known to keep heads apart"


def test_the_rest_of_the_cache() -> None:
    model, logits, cache = run(with_kind(TINY, "hyla"))
    assert cache.stack_activation("pattern").shape == (2, 3, 4, 6, 6)
    assert torch.equal(cache["attn", -1], cache["blocks.1.attn.hook_pattern"])
    assert cache.to("cpu") is cache
    one = cache.apply_slice_to_batch_dim([1])
    assert one["z", 0].shape == (1, 6, 4, 3)
    assert one.remove_batch_dim().decompose_resid().shape == (5, 6, 12)
    lens = cache.logit_lens(positions=None)
    assert_same(lens.readout.values[-1], logits)
    with pytest.raises(MissingMemberError, match="to_single_token"):
        cache.logit_attrs(cache.decompose_resid(), "a word")
    _, some = model.run_with_cache(model_and_inputs(model.config)[1],
                                   names_filter=lambda name: name.endswith("hook_z"),
                                   remove_batch_dim=False, pos_slice=-1)
    assert {name: tuple(value.shape) for name, value in some.items()} == {
        f"blocks.{layer}.attn.hook_z": (3, 1, 4, 3) for layer in range(2)}
    with pytest.raises(ConfigError, match="hook_value_hidden would be sliced along another axis"):
        model.run_with_cache(model_and_inputs(model.config)[1], pos_slice=-1)
