"""Weights of the official JAX/Flax implementation, in and out.

The exchange format is a flat mapping from Flax paths joined by `/` to arrays, beside the model's
configuration as a dictionary of the official field names. The official `state.pkl` is a pickle,
which runs whatever code it contains; it is never loaded here. The README says how to convert it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.errors import ArtifactError, UnknownNameError, check
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, heads_from_total, kind_of
from latentcode.models.transformer import HookedTransformer

MIXERS: dict[str, str] = {
    "softmax_attention": "softmax",
    "linear_attention": "linear",
    "linear_attention_rms_head": "linear_rms_head",
    "linear_hypatt": "hyla",
    "linear_hypatt_mlp_linear": "hyla_linear",
    "linear_hypatt_mlp_linear_no_rms_head": "hyla_linear_no_rms_head",
    "linear_hypatt_no_rms_head": "hyla_no_rms_head",
    "softmax_hypatt": "hyla_softmax",
}
"""Official `sequence_mixer` -> our attention kind."""

STATE_MIXERS: dict[str, str] = {"gelu_mlp": "gelu", "swiglu": "swiglu"}
"""Official `state_mixer` -> our feed-forward."""

_ONLY: dict[str, tuple[Any, ...]] = {
    "norm": ("layer",), "block_type": ("default",), "use_absolute_position": (False,),
    "share_params_over_layers": (False,), "normalize_qk": (False,), "dropout_rate": (0.0,)}
"""Official fields that our model has no counterpart for, with the only values it can express."""

_REQUIRED = ("emb_dim", "mlp_dim", "num_heads", "num_layers", "output_dim", "qk_dim", "v_dim",
             "sequence_mixer", "state_mixer", "use_causal_mask", "use_relative_position")


def config_from_flax(official: Mapping[str, Any], params: Mapping[str, np.ndarray]) -> ModelConfig:
    """Translate an official model configuration; the input width is read off the embedding.

    `ConfigError` names a field that is missing, unknown to us, or of a value that our model
    cannot express.
    """
    missing = [name for name in _REQUIRED if name not in official]
    check(not missing, f"official configuration lacks {', '.join(missing)}")
    for name, values in _ONLY.items():
        check(official.get(name, values[0]) in values,
              f"official {name} is {official.get(name)!r}; only {values[0]!r} can be imported")
    for name, table in (("sequence_mixer", MIXERS), ("state_mixer", STATE_MIXERS)):
        if official[name] not in table:
            raise UnknownNameError(f"official {name}", official[name], table)
    embedding = "token" if official.get("vocab_size") else "dense"
    table_name = "embedding/embedding" if embedding == "token" else "embedding/kernel"
    check(table_name in params, f"official parameters lack {table_name}", ArtifactError)
    d_input = int(params[table_name].shape[0])
    tied = embedding == "token" and official["output_dim"] < 1
    relative = bool(official["use_relative_position"])
    distance = int(official.get("relative_position_max_dist", 32)) if relative else 32
    heads = int(official["num_heads"])
    return ModelConfig(
        d_input=d_input, d_output=d_input if tied else int(official["output_dim"]),
        n_layers=int(official["num_layers"]), d_model=int(official["emb_dim"]), n_heads=heads,
        d_head=heads_from_total(int(official["qk_dim"]), heads, "official qk_dim"),
        d_head_v=heads_from_total(int(official["v_dim"]), heads, "official v_dim"),
        d_mlp=int(official["mlp_dim"]), **ATTENTION_KINDS[MIXERS[official["sequence_mixer"]]],
        feedforward=STATE_MIXERS[official["state_mixer"]],  # type: ignore[arg-type]
        positions="t5" if relative else "none", n_buckets=distance, max_distance=distance,
        causal=bool(official["use_causal_mask"]),
        attention_dropout=float(official.get("attention_dropout_rate", 0.1)),
        embedding=embedding, readout="tied" if tied else "dense")  # type: ignore[arg-type]


def config_to_flax(config: ModelConfig) -> dict[str, Any]:
    """Return the official configuration of a model; `ConfigError` where there is none."""
    mixers = {kind: mixer for mixer, kind in MIXERS.items()}
    state_mixers = {ours: official for official, ours in STATE_MIXERS.items()}
    kind = kind_of(config)
    check(kind in mixers and config.feedforward in state_mixers,
          f"attention kind {kind!r} with feed-forward {config.feedforward!r} has no official "
          f"counterpart; those that have: {', '.join(mixers)} with {', '.join(state_mixers)}")
    check(config.positions in ("t5", "none") and config.n_buckets == config.max_distance
          and not config.cross_attention and config.attention_dropout_form == "shared",
          f"positions {config.positions!r} with n_buckets {config.n_buckets} and max_distance "
          f"{config.max_distance}, cross_attention {config.cross_attention}, dropout form "
          f"{config.attention_dropout_form!r}; expected t5 or none, equal numbers, False, shared")
    official: dict[str, Any] = {
        "emb_dim": config.d_model, "mlp_dim": config.d_mlp, "num_heads": config.n_heads,
        "num_layers": config.n_layers, "qk_dim": config.d_head * config.n_heads,
        "v_dim": config.d_head_v * config.n_heads,
        "output_dim": -1 if config.readout == "tied" else config.d_output,
        "sequence_mixer": mixers[kind], "state_mixer": state_mixers[config.feedforward],
        "use_causal_mask": config.causal, "use_relative_position": config.positions == "t5",
        "relative_position_max_dist": config.max_distance,
        "attention_dropout_rate": config.attention_dropout,
        **{name: values[0] for name, values in _ONLY.items()}}
    if config.embedding == "token":
        official["vocab_size"] = config.d_input
    return official


def _names(config: ModelConfig) -> dict[str, str]:
    """Our parameter name -> Flax path, for every parameter of the model."""
    names = {"embed.W_E": "embedding/embedding" if config.embedding == "token"
             else "embedding/kernel",
             "ln_final.w": "decoder_norm/scale", "ln_final.b": "decoder_norm/bias"}
    if config.embedding == "dense":
        names["embed.b_E"] = "embedding/bias"
    if config.readout == "dense":
        names |= {"unembed.W_U": "logitdense/kernel", "unembed.b_U": "logitdense/bias"}
    dense = ({"W_in": "Dense_0/kernel", "b_in": "Dense_0/bias",
              "W_out": "Dense_1/kernel", "b_out": "Dense_1/bias"}
             if config.feedforward == "gelu" else
             {"W_gate": "Dense_0/kernel", "W_in": "Dense_1/kernel", "W_out": "Dense_2/kernel"})
    for layer in range(config.n_layers):
        ours, flax = f"blocks.{layer}", f"transformer_block_{layer}"
        for letter, word in (("Q", "query"), ("K", "key"), ("V", "value"), ("O", "out")):
            names[f"{ours}.attn.W_{letter}"] = f"{flax}/sequence_mixer/{word}/kernel"
            names[f"{ours}.attn.b_{letter}"] = f"{flax}/sequence_mixer/{word}/bias"
        if config.positions == "t5":
            names[f"{ours}.attn.rel_pos_bias"] = f"{flax}/relative_embedding/rel_embedding"
        for norm, official in (("ln1", "norm1"), ("ln2", "norm2")):
            names[f"{ours}.{norm}.w"] = f"{flax}/{official}/scale"
            names[f"{ours}.{norm}.b"] = f"{flax}/{official}/bias"
        names |= {f"{ours}.mlp.{name}": f"{flax}/state_mixer/{path}"
                  for name, path in dense.items()}
    return names


def _heads_first(name: str) -> bool:
    """Whether the official kernel [D, H, d] stands beside our [H, D, d]."""
    return name.endswith(("attn.W_Q", "attn.W_K", "attn.W_V"))


def model_from_flax(
    official: Mapping[str, Any], params: Mapping[str, np.ndarray]
) -> HookedTransformer:
    """Return our model with the official weights, which must match name by name.

    official  the model configuration with the official field names
    params    Flax paths joined by `/` -> arrays

    `ArtifactError` names a missing or unknown parameter or one of the wrong shape.
    """
    config = config_from_flax(official, params)
    model = HookedTransformer(config)
    names = _names(config)
    missing = sorted(set(names.values()) - set(params))
    unknown = sorted(set(params) - set(names.values()))
    check(not missing, f"official parameters lack {', '.join(missing)}", ArtifactError)
    check(not unknown, f"official parameters hold unknown {', '.join(unknown)}", ArtifactError)
    state: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        value = np.asarray(params[names[name]])
        wanted = tuple(parameter.shape)
        if _heads_first(name):
            wanted = (wanted[1], wanted[0], wanted[2])
        check(value.shape == wanted and value.dtype.kind == "f",
              f"official parameter {names[name]} has shape {value.shape} and type {value.dtype}; "
              f"expected {wanted} and floating point", ArtifactError)
        tensor = torch.from_numpy(np.ascontiguousarray(value))
        state[name] = tensor.transpose(0, 1) if _heads_first(name) else tensor
    model.load_state_dict(state)
    return model


def params_to_flax(model: HookedTransformer) -> dict[str, np.ndarray]:
    """Return the weights of a model as Flax paths -> arrays, the inverse of `model_from_flax`."""
    config_to_flax(model.cfg)  # raises where there is no official counterpart
    names = _names(model.cfg)
    return {names[name]: np.ascontiguousarray(
        (p.detach().transpose(0, 1) if _heads_first(name) else p.detach()).cpu().numpy())
        for name, p in model.named_parameters()}


__all__ = ["MIXERS", "config_from_flax", "config_to_flax", "model_from_flax",
           "params_to_flax"]
