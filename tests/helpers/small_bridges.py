"""Seeded models of a few thousand weights, of every architecture that has a TransformerLens bridge.

A configuration gets every size of `SIZES` that it knows by that name, and what `NEEDED` says.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 400
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads"), 4),
    "num_key_value_heads": 2,
    **dict.fromkeys(("intermediate_size", "ffn_hidden_size", "ffn_dim", "d_ff"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    **dict.fromkeys(("head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
    # Shorter than the prompts, so that it is seen what a window masks.
    "sliding_window": 8,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0),
    "rotary_dim": 4,
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    "num_experts_per_tok": 2,
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), 16),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
}
LATENT = {"num_key_value_heads": 4}
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}
LINEAR_HEADS = {f"linear_{what}": size for what, size in {
    "num_key_heads": 2, "num_value_heads": 2, "key_head_dim": 8, "value_head_dim": 8}.items()}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "BambaForCausalLM": {**MAMBA, "attn_layer_indices": [1]},
    "DeepseekV2ForCausalLM": LATENT,
    "DeepseekV3ForCausalLM": LATENT,
    "FalconH1ForCausalLM": {**MAMBA, "mamba_n_heads": 4, "mamba_d_ssm": 32},
    "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "Gemma4ForCausalLM": {"vocab_size_per_layer_input": VOCABULARY,
                          "hidden_size_per_layer_input": 8, "global_head_dim": 8,
                          "num_kv_shared_layers": 0},
    "Glm4MoeLiteForCausalLM": LATENT,
    "GlmMoeDsaForCausalLM": {**LATENT, "index_topk": 8, "index_n_heads": 2, "index_head_dim": 8},
    "GraniteMoeHybridForCausalLM": {**MAMBA, "layer_types": ["mamba", "attention"]},
    "JambaForCausalLM": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4},
    "Lfm2MoeForCausalLM": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "Lfm2ForCausalLM": {"layer_types": ["conv", "full_attention"]},
    "Mamba2ForCausalLM": {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1},
    "NemotronHForCausalLM": {"layer_types": ["mamba", "attention"], "mamba_num_heads": 4,
                             "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1},
    "Qwen3NextForCausalLM": {**HYBRID, **LINEAR_HEADS},
    "Qwen3_5ForCausalLM": {**HYBRID, **LINEAR_HEADS},
    "Qwen3_5MoeForCausalLM": {**HYBRID, **LINEAR_HEADS},
    "RecurrentGemmaForCausalLM": {"block_types": ["recurrent", "attention"], "lru_width": 32,
                                  "attention_window_size": 8},
    "YoutuForCausalLM": LATENT,
    "Zamba2ForCausalLM": {"layer_types": ["mamba", "hybrid"], "mamba_ngroups": 1,
                          "mamba_d_state": 8, "mamba_headdim": 8, "n_mamba_heads": 8,
                          "num_mem_blocks": 1},
}
"""What else a configuration has to be given: two layers, one of each kind where there are two."""
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "FalconForCausalLM, alibi": ("FalconForCausalLM", {"alibi": True}),
    "FalconForCausalLM, new_decoder_architecture": (
        "FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "GPT2LMHeadModel, scale_attn_by_inverse_layer_idx": (
        "GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True,
                            "reorder_and_upcast_attn": True}),
    "GPTBigCodeForCausalLM, multi_query=False": (
        "GPTBigCodeForCausalLM", {"multi_query": False}),
    "GPTNeoXForCausalLM, use_parallel_residual=False": (
        "GPTNeoXForCausalLM", {"use_parallel_residual": False}),
    "LlamaForCausalLM, attention_bias": ("LlamaForCausalLM", {"attention_bias": True}),
    "CohereForCausalLM, use_qk_norm": ("CohereForCausalLM", {"use_qk_norm": True}),
    "MptForCausalLM, clip_qkv": ("MptForCausalLM", {"attn_config": {"clip_qkv": 0.05}}),
    "OlmoForCausalLM, clip_qkv": ("OlmoForCausalLM", {"clip_qkv": 0.05}),
    "OPTForCausalLM, do_layer_norm_before=False": (
        "OPTForCausalLM", {"do_layer_norm_before": False}),
    "PhiForCausalLM, qk_layernorm": ("PhiForCausalLM", {"qk_layernorm": True}),
    "Qwen2ForCausalLM, use_sliding_window": (
        "Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 0}),
    "StableLmForCausalLM, qk_layernorm": (
        "StableLmForCausalLM", {"qk_layernorm": True, "use_parallel_residual": True}),
}
"""Switches of an architecture that change its attention."""


class NotBuiltError(Exception):
    """Why there is no small model of an architecture."""


def names() -> tuple[str, ...]:
    """Return every architecture that has a bridge, and the variants."""
    from transformer_lens.factories.architecture_adapter_factory import SUPPORTED_ARCHITECTURES

    return tuple(sorted({*SUPPORTED_ARCHITECTURES, *VARIANTS}, key=str.lower))


def make(name: str, folder: Path) -> None:
    """Save a model of an architecture, or of a variant, with random weights and a tokenizer.

    `NotBuiltError` says why that cannot be done.
    """
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        try:
            model = transformers.AutoModelForCausalLM.from_config(_config(name))
            for parameter in model.parameters():  # biases too, which would be zero
                parameter.add_(0.1 * torch.randn_like(parameter))
            model.eval()(torch.arange(4)[None])
        except NotBuiltError:
            raise
        except Exception as error:  # a configuration that asks for more than `NEEDED` gives
            first = next(iter(str(error).strip().splitlines()), "")
            raise NotBuiltError(
                f"no small model was made: {type(error).__name__} {first}") from None
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)


def _config(name: str) -> Any:
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TYPES

    architecture, variant = VARIANTS.get(name, (name, {}))
    if not hasattr(transformers, architecture):
        raise NotBuiltError("transformers has no class of this name; code that comes with a model "
                            "is never run")
    types = [kind for kind, made in TYPES.items()
             if architecture in ((made,) if isinstance(made, str) else made)]
    if not types:
        raise NotBuiltError("not a model that predicts the next token of a text alone, which "
                            "load_pretrained opens")
    if architecture.endswith("ForConditionalGeneration"):
        raise NotBuiltError("takes images or sound beside text, and no small one was made")
    # The type of the text alone, or the one that is called like the architecture.
    kind = next((k for k in types if k.endswith("_text")), min(types, key=len))
    kind = "llama" if architecture == "LlamaForCausalLM" else kind
    made = CONFIG_MAPPING[kind]
    known = {*inspect.signature(made.__init__).parameters, *made.attribute_map,
             *(field for base in made.__mro__ for field in getattr(base, "__annotations__", ()))}
    sizes = {key: value for key, value in SIZES.items() if key in known}
    for alias, key in made.attribute_map.items():
        if key in sizes:
            sizes.pop(alias, None)
    return made(**{**sizes, **NEEDED.get(architecture, {}), **variant})


def _tokenizer() -> Any:
    """Return a tokenizer whose words are the numbers of its tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0"))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="0", eos_token="0",
                                   unk_token="0")
