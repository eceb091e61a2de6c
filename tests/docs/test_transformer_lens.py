"""Does the page on TransformerLens say what is there? Its tables are held against real models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from places import ROOT
from small_lens import TINY, model_and_inputs
from transformer_lens import SVDInterpreter, patching
from transformer_lens.head_detector import detect_head
from transformer_lens.tools.analysis import attribution_patch, direct_logit_attribution

from latentcode.errors import LatentCodeError
from latentcode.models.config import ModelConfig, with_kind
from latentcode.models.lens import REFUSED
from latentcode.models.transformer import HookedTransformer

PAGE = (ROOT / "docs" / "transformer_lens.md").read_text(encoding="utf-8")
IN: dict[str, Callable[[ModelConfig], bool]] = {
    "every model": lambda config: True,
    "value networks other than linear": lambda config: config.value_network != "linear",
    "cross-attention": lambda config: config.cross_attention,
    "mixture of experts": lambda config: config.feedforward == "moe",
    "GELU and SwiGLU": lambda config: config.feedforward != "moe",
    "SwiGLU": lambda config: config.feedforward == "swiglu",
    "cross-attention and value networks other than linear": lambda config: (
        config.cross_attention and config.value_network != "linear"),
}


def table(heading: str) -> Iterator[list[str]]:
    """Yield the rows of the table under a heading."""
    text = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    for line in [line for line in text.splitlines() if line.startswith("| `")]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize("config", [
    TINY, with_kind(TINY, "linear"), with_kind(TINY, "hyla_deep"), with_kind(TINY, "softmax_moe"),
    replace(TINY, feedforward="swiglu"), replace(TINY, cross_attention=True),
    replace(with_kind(TINY, "softmax"), cross_attention=True, positions="rotary")],
    ids=range(7))
def test_every_hook_has_a_row_with_its_shape(config: ModelConfig) -> None:
    sizes = {"B": 9, "T": 6, "K": 7, "1": 1, "D": config.d_model, "H": config.n_heads,
             "R": config.n_experts, **{name: getattr(config, name)
                                       for name in ("d_head", "d_head_v", "d_mlp")}}
    model = HookedTransformer(config).eval()
    context = torch.randn(9, 7, config.d_model) if config.cross_attention else None
    _, cache = model.run_with_cache(torch.randn(9, 6, config.d_input), context=context)
    rows = {}
    for hook, shape, where in table("Hooks"):
        if IN[where.split(";")[0]](config):
            wanted = tuple(sizes[letter] for letter in re.findall(r"\w+", shape))
            for layer in range(config.n_layers if ".l." in hook else 1):
                rows[hook.strip("`").replace(".l.", f".{layer}.")] = wanted
    assert rows == {name: tuple(value.shape) for name, value in cache.items()}
    assert rows.keys() == model.hook_dict.keys()


def _tried(kind: str) -> dict[str, Callable[[], Any]]:
    """Return the members of the table, each with an honest use of it."""
    model, inputs = model_and_inputs(with_kind(TINY, kind))
    ids, others = model.to_tokens(inputs), model.to_tokens(inputs.flip(0))
    _, cache = model.run_with_cache(ids)
    stack = cache.accumulated_resid()

    def metric(logits: torch.Tensor) -> torch.Tensor:
        return logits[:, -1, 0].mean()

    def sweep(name: str) -> Callable[[], Any]:
        return lambda: getattr(patching, name)(model, others, cache, metric)

    def remove_batch_dim() -> Any:
        return model.run_with_cache(ids[:1])[1].remove_batch_dim()

    tried: dict[str, Callable[[], Any]] = {
        "run_with_cache": lambda: model.run_with_cache(
            inputs[:1], names_filter="hook_embed", pos_slice=-1, remove_batch_dim=True,
            device="cpu"),
        "run_with_hooks": lambda: model.run_with_hooks(ids, fwd_hooks=[]),
        "hooks": lambda: model.hooks().__enter__(),
        "add_hook": lambda: model.add_hook("hook_embed", lambda value, hook: None),
        "reset_hooks": model.reset_hooks,
        "stop_at_layer": lambda: model(inputs, stop_at_layer=1),
        "incl_bwd": lambda: model.run_with_cache(inputs, incl_bwd=True),
        'return_type="loss"': lambda: model(inputs, return_type="loss"),
        "accumulated_bias": lambda: model.accumulated_bias(1),
        "tl_parameters": model.tl_parameters,
        "all_composition_scores": lambda: model.all_composition_scores("Q"),
        "tokens_to_residual_directions": lambda: model.tokens_to_residual_directions(ids % 3),
        "to_tokens": lambda: model.to_tokens(inputs),
        "cache.decompose_resid": cache.decompose_resid,
        "cache.logit_attrs": lambda: cache.logit_attrs(stack, 0),
        "cache.accumulated_resid": cache.accumulated_resid,
        "cache.apply_ln_to_stack": lambda: cache.apply_ln_to_stack(stack),
        "cache.stack_activation": lambda: cache.stack_activation("z"),
        "cache.logit_lens": cache.logit_lens,
        "cache.stack_neuron_results": lambda: cache.stack_neuron_results(2),
        "cache.get_neuron_results": lambda: cache.get_neuron_results(0),
        "cache.stack_head_results": cache.stack_head_results,
        "cache.compute_head_results": cache.compute_head_results,
        "cache.get_full_resid_decomposition": cache.get_full_resid_decomposition,
        "cache.to": lambda: cache.to("cpu"),
        "cache.remove_batch_dim": remove_batch_dim,
        "cache.apply_slice_to_batch_dim": lambda: cache.apply_slice_to_batch_dim(0),
        "patching.generic_activation_patch": lambda: patching.generic_activation_patch(
            model, others, cache, metric, patching.layer_pos_patch_setter, "attn_out",
            ("layer", "pos")),
        **{f"patching.{name}": sweep(name) for name in dir(patching)
           if re.fullmatch(r"get_act_patch_(resid_\w+|attn_out|mlp_out|attn_head_\w+_all_pos)",
                           name)},
        "patching.get_act_patch_direct_path": lambda: patching.get_act_patch_direct_path(
            model, others, cache, cache, metric, 0, 0),
        "detect_head": lambda: detect_head(model, ids[:1], "previous_token_head"),
        "direct_logit_attribution": lambda: direct_logit_attribution(model, ids, 0),
        "attribution_patch": lambda: attribution_patch(model, ids[:1], others[:1], metric),
        "SVDInterpreter": lambda: SVDInterpreter(model).get_singular_vectors("w_out", 0),
        "from_pretrained": lambda: HookedTransformer.from_pretrained("gpt2"),
        "boot_transformers": lambda: HookedTransformer.boot_transformers("gpt2"),
    }
    for name in ("cfg", "QK", "OV", "all_head_labels", "W_E", "W_U", "b_U", "W_in", "b_in", "W_out",
                 "b_out", *(f"{part}_{letter}" for part in "Wb" for letter in "QKVO"), *REFUSED):
        tried[name] = lambda name=name: getattr(model, name)
    return tried


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "column"), [("softmax", 1), ("hyla", 2)])
def test_every_member_is_tried(kind: str, column: int) -> None:
    said = {name: row[column] for row in table("What works")
            for name in re.findall(r"`([^`]+)`", row[0])}
    tried = _tried(kind)
    assert said.keys() == tried.keys()
    found, messages = {}, []
    for name, use in tried.items():
        try:
            use()
            found[name] = "works"
        except LatentCodeError as error:
            found[name] = "refused"
            messages.append(str(error))
    assert said == found
    assert [message for message in messages if "\n" in message] == []


@pytest.mark.slow
def test_the_example_of_the_page() -> None:
    names: dict[str, Any] = {}
    exec(PAGE.split("```python\n")[1].split("```")[0], names)
    sums = names["cache"].logit_attrs(names["parts"], 0).sum(0)
    model = names["model"]
    constant = model.ln_final.b @ model.W_U[:, 0] + model.b_U[0]
    torch.testing.assert_close(sums + constant, names["logits"][..., 0], rtol=1e-4, atol=1e-4)
