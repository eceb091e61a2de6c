"""`cfg`, weights, circuits, patching, detectors: what TransformerLens' tools ask, and refusals."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pytest
import torch
from small_lens import TINY, assert_same, model_and_inputs
from torch import Tensor
from transformer_lens import SVDInterpreter, patching
from transformer_lens.head_detector import detect_head
from transformer_lens.tools.analysis import attribution_patch, direct_logit_attribution
from transformer_lens.utilities import get_act_name

from latentcode.errors import ConfigError, MissingMemberError
from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.transformer import HookedTransformer

SOFTMAX = with_kind(TINY, "softmax")
TIED = replace(SOFTMAX, embedding="token", readout="tied", d_input=7, d_output=7,
               positions="rotary", causal=True, feedforward="swiglu")


def test_cfg_answers_and_stays_the_model_config() -> None:
    model = HookedTransformer(TINY).double()
    cfg = model.cfg
    assert cfg == TINY
    assert TINY.__eq__(cfg) is NotImplemented  # so that Python asks cfg, from whichever side
    assert cfg != SOFTMAX
    assert hash(cfg) == hash(TINY)
    assert asdict(cfg) == asdict(TINY)
    assert type(HookedTransformer(replace(cfg, n_layers=1)).config) is ModelConfig
    assert pickle.loads(pickle.dumps(cfg)).dtype == copy.copy(cfg).dtype == torch.float64
    shown = {name: getattr(cfg, name) for name in (
        "n_layers", "d_vocab", "d_vocab_out", "act_fn", "attn_only", "normalization_type",
        "positional_embedding_type", "n_key_value_heads", "use_attn_result", "attention_dir",
        "use_split_qkv_input", "default_prepend_bos", "model_name", "seed", "num_experts")}
    assert shown == {
        "n_layers": 2, "d_vocab": 3, "d_vocab_out": 3, "act_fn": "gelu_new", "attn_only": False,
        "normalization_type": "LN", "positional_embedding_type": "relative_positional_bias",
        "n_key_value_heads": None, "use_attn_result": False, "attention_dir": "bidirectional",
        "use_split_qkv_input": False, "default_prepend_bos": False, "model_name": "hyla",
        "seed": None, "num_experts": None}
    assert (cfg.device, cfg.dtype) == (torch.device("cpu"), torch.float64)
    assert cfg.n_ctx > 10**9
    tied = HookedTransformer(TIED).cfg
    assert (tied.d_vocab, tied.act_fn, tied.positional_embedding_type, tied.attention_dir) == (
        7, "silu", "rotary", "causal")


def test_stacked_weights_compute_the_model() -> None:
    model, inputs = model_and_inputs(SOFTMAX)
    logits, cache = model.run_with_cache(inputs)
    assert_same(inputs @ model.W_E + model.b_E, cache["embed"])
    for layer in range(2):
        x = cache["normalized", layer, "ln1"] * model.layer(layer).ln1.w + model.layer(layer).ln1.b
        for name in "qkv":
            weight, bias = (getattr(model, f"{part}_{name.upper()}")[layer] for part in "Wb")
            assert_same(torch.einsum("btd,hde->bthe", x, weight) + bias, cache[name, layer])
        heads = torch.einsum("bqhd,hde->bqe", cache["z", layer], model.W_O[layer])
        assert_same(heads + model.b_O[layer], cache["attn_out", layer])
        x = cache["normalized", layer, "ln2"] * model.layer(layer).ln2.w + model.layer(layer).ln2.b
        assert_same(x @ model.W_in[layer] + model.b_in[layer], cache["pre", layer])
        assert_same(cache["post", layer] @ model.W_out[layer] + model.b_out[layer],
                    cache["mlp_out", layer])
    assert_same(model.ln_final(cache["resid_post", 1]) @ model.W_U + model.b_U, logits)
    assert_same(model.QK.AB, model.W_Q @ model.W_K.transpose(-2, -1))
    assert_same(model.OV.AB, model.W_V @ model.W_O)
    scores = model.all_composition_scores("K")
    first, second = model.OV[0, 3].AB, model.QK[1, 2].AB.T
    assert_same(scores[0, 3, 1, 2], (first @ second).norm() / first.norm() / second.norm())
    assert not scores[1].any()
    with pytest.raises(ConfigError, match=r"no matrix W_V W_O of one head; use lc\.value_network"):
        HookedTransformer(TINY).OV  # noqa: B018
    with pytest.raises(ConfigError, match="'gelu' have no such weight"):
        model.W_gate  # noqa: B018


def test_layers_without_biases_have_biases_of_zero() -> None:
    model, ids = model_and_inputs(TIED)
    logits, cache = model.run_with_cache(ids)
    assert_same(model.ln_final(cache["resid_post", 1]) @ model.W_U + model.b_U, logits)
    shapes = {name: tuple(getattr(model, name).shape) for name in ("W_gate", "b_in", "b_out")}
    assert shapes == {"W_gate": (2, 12, 8), "b_in": (2, 8), "b_out": (2, 12)}
    assert not any(getattr(model, name).any() for name in ("b_in", "b_out", "b_U", "b_E"))
    experts = HookedTransformer(with_kind(TINY, "hyla_moe"))
    assert experts.W_in.shape == (2, 3, 12, 8)
    assert experts.b_out.shape == (2, 3, 12)


def test_ids_stand_for_their_vectors() -> None:
    model, inputs = model_and_inputs(TINY)
    inputs[:, 4] = inputs[:, 1]
    ids = model.to_tokens(inputs)
    assert torch.equal(ids[:, 4], ids[:, 1])
    assert len(ids.unique()) == 3 * 5
    assert torch.equal(model(ids), model(inputs))
    assert torch.equal(model(ids[1:, :3]), model(inputs[1:, :3]))
    assert torch.equal(model(copy.deepcopy(ids)), model(inputs))
    edits: list[Callable[[Tensor], Any]] = [
        lambda ids: ids[:].__setitem__((0, 0), 0), lambda ids: ids.fill_(0),
        lambda ids: ids.copy_(ids.flip(0)), lambda ids: ids.view(-1).zero_()]
    edited = [model.to_tokens(inputs) for _ in edits]
    for edit, one in zip(edits, edited, strict=True):
        edit(one)
    for lost in (ids.clone(), ids[..., :3], ids + 0, *edited, edited[0][:2],
                 copy.deepcopy(edited[0])):
        with pytest.raises(ConfigError, match="have lost their vectors"):
            model(lost)
    ours, tokens = model_and_inputs(TIED)
    assert ours.to_tokens(tokens) is tokens
    with pytest.raises(MissingMemberError, match="not text"):
        model.to_tokens("a sentence")


def _patching_case() -> tuple[HookedTransformer, Tensor, Tensor]:
    model, inputs = model_and_inputs(with_kind(TINY, "hyla"))
    return model, inputs, inputs.flip(0)


def _first_answer(logits: Tensor) -> Tensor:
    return logits[:, -1, 0].mean()


@torch.no_grad()
def test_a_sweep_patches_what_is_patched_by_hand() -> None:
    model, inputs, others = _patching_case()
    logits, cache = model.run_with_cache(inputs)

    def write(pattern: Tensor, hook: object) -> Tensor:
        pattern[:, 2] = cache[get_act_name("pattern", 1)][:, 2]
        return pattern

    by_hand = _first_answer(model.run_with_hooks(
        others, fwd_hooks=[("blocks.1.attn.hook_pattern", write)]))
    corrupted = model.to_tokens(others)
    swept = patching.get_act_patch_attn_head_pattern_all_pos(model, corrupted, cache, _first_answer)
    torch.testing.assert_close(swept[1, 2], by_hand.float())
    assert (swept - _first_answer(model(others))).abs().min() > 1e-6
    everywhere = patching.generic_activation_patch(
        model, corrupted, cache, _first_answer, lambda now, index, then: then, "resid_post",
        ("layer",))
    torch.testing.assert_close(everywhere[1], _first_answer(logits).float())
    with pytest.raises(ConfigError, match=r"expected model\.to_tokens\(inputs\)"):
        patching.get_act_patch_resid_pre(model, others, cache, _first_answer)
    with pytest.raises(MissingMemberError, match="set_use_split_qkv_input"):
        patching.get_act_patch_direct_path(model, corrupted, cache, cache, _first_answer, 0, 0)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize(("name", "shape"), {
    "resid_pre": (2, 6), "resid_mid": (2, 6), "attn_out": (2, 6), "mlp_out": (2, 6),
    "block_every": (3, 2, 6), "attn_head_out_all_pos": (2, 4), "attn_head_q_all_pos": (2, 4),
    "attn_head_k_all_pos": (2, 4), "attn_head_v_by_pos": (2, 6, 4),
    "attn_head_pattern_by_pos": (2, 4, 6), "attn_head_all_pos_every": (5, 2, 4)}.items())
def test_every_sweep(name: str, shape: tuple[int, ...]) -> None:
    """It changes the answer, and patching with what is there already changes nothing."""
    model, inputs, others = _patching_case()
    clean, corrupted = model.to_tokens(inputs), model.to_tokens(others)
    logits, cache = model.run_with_cache(clean)
    sweep = getattr(patching, f"get_act_patch_{name}")
    patched = sweep(model, corrupted, cache, _first_answer)
    assert patched.shape == shape
    assert (patched - _first_answer(model(corrupted))).abs().max() > 1e-6
    own = sweep(model, clean, cache, _first_answer)
    torch.testing.assert_close(own, _first_answer(logits).float().expand(shape))


@pytest.mark.slow
def test_other_tools() -> None:
    model, inputs = model_and_inputs(SOFTMAX)
    ids = model.to_tokens(inputs)
    logits, cache = model.run_with_cache(ids)
    found = detect_head(model, ids[:1], "previous_token_head")
    pattern = cache["pattern", 1][0]
    previous = pattern.diagonal(-1, 1, 2).sum(-1) / pattern.sum((1, 2))
    torch.testing.assert_close(found[1], previous)
    attributed = direct_logit_attribution(model, ids, 1, unit="head").attribution
    constant = model.ln_final.b @ model.W_U + model.b_U
    assert_same(attributed.sum(0) + constant[1], logits[:, -1, 1])
    vectors = SVDInterpreter(model).get_singular_vectors("w_in", 0, 2)
    assert vectors.shape == (3, 1, 2)
    experts = SVDInterpreter(HookedTransformer(with_kind(TINY, "hyla_moe")))
    with pytest.raises(NotImplementedError, match="expert"):
        experts.get_singular_vectors("w_in", 0)
    effects = attribution_patch(model, ids, model.to_tokens(inputs.flip(0)),
                                _first_answer)
    assert len(effects.node_scores) > 6


def test_stops_at_a_layer() -> None:
    model, inputs = model_and_inputs(TINY)
    logits, cache = model.run_with_cache(inputs)
    for stop, name in ((0, "blocks.0.hook_resid_pre"), (1, "blocks.1.hook_resid_pre"),
                       (-1, "blocks.1.hook_resid_pre"), (2, "blocks.1.hook_resid_post")):
        stream, seen = model.run_with_cache(inputs, stop_at_layer=stop)
        assert_same(stream, cache[name])
        computed = {int(key.split(".")[1]) for key in seen if key.startswith("blocks")}
        assert computed == set(range(2)[:stop])
    assert_same(model(inputs, stop_at_layer=2, read=2), cache["resid_post", 1][:, -2:])
    for wrong in (3, -3, True):
        with pytest.raises(ConfigError, match="expected a layer from -2 to 2"):
            model(inputs, stop_at_layer=wrong)
    assert_same(model(inputs, return_type="logits"), logits)
    with pytest.raises(ConfigError, match=r"a loss belongs to the task \(task\.loss\)"):
        model(inputs, return_type="loss")


def test_hooks_come_and_go() -> None:
    model, inputs = model_and_inputs(TINY)
    plain, names = model(inputs), []
    see = partial(lambda value, hook, into: into.append(hook.name), into=names)
    with model.hooks(fwd_hooks=[(lambda name: name.endswith("hook_pattern"), see)]):
        model(inputs)
    model.add_hook("blocks.0.attn.hook_pattern", lambda value, hook: 0 * value)
    assert not torch.equal(model(inputs), plain)
    model.reset_hooks()
    assert torch.equal(model(inputs), plain)
    assert names == [f"blocks.{layer}.attn.hook_pattern" for layer in range(2)]
