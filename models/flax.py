"""Weights of the official JAX/Flax implementation, in and out.

The exchange format is a flat mapping from Flax paths joined by `/` to arrays, beside the model's
configuration as a dictionary of the official field names. The official `state.pkl` is a pickle,
which runs whatever code it contains; it is never loaded here (`latentcode.official.CONVERSION`
turns it into an `.npz`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.errors import ArtifactError, UnknownNameError, check, check_whole
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

TRAINING_FIELDS: dict[str, str] = {
    "train_steps": "steps", "batch": "batch_size", "lr": "learning_rate",
    "weight_decay": "weight_decay", "warmup_steps": "warmup_steps"}
"""What a file may say about the optimisation beside the model -> our name for it."""

OPTIMIZER: dict[str, float] = {"b1": 0.9, "b2": 0.999, "eps": 1e-8}
"""AdamW's constants, which a file may state too."""

_ONLY: dict[str, tuple[Any, ...]] = {
    "norm": ("layer",), "block_type": ("default",), "use_absolute_position": (False,),
    "share_params_over_layers": (False,), "normalize_qk": (False,), "dropout_rate": (0.0,),
    "moe_num": (None, -1), "moe_top_k": (None, -1)}
"""Official fields that our model has no counterpart for, with the only values it can express."""

_SIZES = ("emb_dim", "mlp_dim", "num_heads", "num_layers", "qk_dim", "v_dim",
          "relative_position_max_dist")
_FLAGS = ("use_causal_mask", "use_relative_position")
_REQUIRED = (*_SIZES, *_FLAGS, "sequence_mixer", "state_mixer")
_OPTIONAL = ("output_dim", "vocab_size", "attention_dropout_rate")


def config_from_flax(official: Mapping[str, Any], params: Mapping[str, np.ndarray]) -> ModelConfig:
    """Translate an official model configuration; the input width is read off the embedding.

    `TRAINING_FIELDS` and `OPTIMIZER` may stand beside it. `ConfigError` names a field that is
    missing, unknown, or of a value that our model cannot express.
    """
    known = {*_REQUIRED, *_OPTIONAL, *_ONLY, *TRAINING_FIELDS, *OPTIMIZER}
    missing = [name for name in _REQUIRED if name not in official]
    unknown = sorted(str(name) for name in official if name not in known)
    vocabulary = official.get("vocab_size")
    if "output_dim" not in official and vocabulary is None:
        missing.append("output_dim")
    check(not missing, f"official configuration lacks {listed(missing)}")
    check(not unknown, f"official configuration has unknown field(s) {listed(unknown)}")
    for name in _SIZES:
        check_whole(f"official {name}", official[name], 1)
    for name in _FLAGS:
        check(type(official[name]) is bool,
              f"official {name} is {official[name]!r}; expected true or false")
    for name, values in _ONLY.items():
        check(official.get(name, values[0]) in values,
              f"official {name} is {official.get(name)!r}; only {values[0]!r} can be imported")
    for name, table in (("sequence_mixer", MIXERS), ("state_mixer", STATE_MIXERS)):
        if official[name] not in list(table):
            raise UnknownNameError(f"official {name}", official[name], table)
    table_name = "embedding/kernel" if vocabulary is None else "embedding/embedding"
    check(table_name in params, f"official parameters lack {table_name}", ArtifactError)
    rows = np.shape(params[table_name])[:1]
    check(vocabulary is None or (vocabulary,) == rows, f"official vocab_size is {vocabulary!r}; "
          f"expected {rows[0] if rows else None}, the number of rows of {table_name}")
    d_input = int(rows[0]) if rows else 0
    output = official.get("output_dim", -1)
    check(type(output) is int and (output >= 1 or vocabulary is not None),
          f"official output_dim is {output!r}; expected a whole number of at least 1")
    distance, heads = official["relative_position_max_dist"], official["num_heads"]
    fields: dict[str, Any] = {
        "d_input": d_input, "d_output": d_input if output < 1 else output,
        "n_layers": official["num_layers"], "d_model": official["emb_dim"], "n_heads": heads,
        "d_head": heads_from_total(official["qk_dim"], heads, "official qk_dim"),
        "d_head_v": heads_from_total(official["v_dim"], heads, "official v_dim"),
        "d_mlp": official["mlp_dim"], **ATTENTION_KINDS[MIXERS[official["sequence_mixer"]]],
        "feedforward": STATE_MIXERS[official["state_mixer"]],
        "positions": "t5" if official["use_relative_position"] else "none",
        "n_buckets": distance, "max_distance": distance, "causal": official["use_causal_mask"],
        # Every official configuration leaves this out, which means 0.1.
        "attention_dropout": official.get("attention_dropout_rate", 0.1),
        "embedding": "dense" if vocabulary is None else "token",
        "readout": "tied" if output < 1 else "dense"}
    return ModelConfig(**fields)


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


def _layout(config: ModelConfig) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Our parameter name -> its Flax path and official shape, for every parameter."""
    d, heads, mlp = config.d_model, config.n_heads, config.d_mlp
    layout: dict[str, tuple[str, tuple[int, ...]]] = {
        "ln_final.w": ("decoder_norm/scale", (d,)), "ln_final.b": ("decoder_norm/bias", (d,))}
    if config.embedding == "token":
        layout["embed.W_E"] = ("embedding/embedding", (config.d_input, d))
    else:
        layout |= {"embed.W_E": ("embedding/kernel", (config.d_input, d)),
                   "embed.b_E": ("embedding/bias", (d,))}
    if config.readout == "dense":
        layout |= {"unembed.W_U": ("logitdense/kernel", (d, config.d_output)),
                   "unembed.b_U": ("logitdense/bias", (config.d_output,))}
    dense: dict[str, tuple[str, tuple[int, ...]]] = (
        {"W_in": ("Dense_0/kernel", (d, mlp)), "b_in": ("Dense_0/bias", (mlp,)),
         "W_out": ("Dense_1/kernel", (mlp, d)), "b_out": ("Dense_1/bias", (d,))}
        if config.feedforward == "gelu" else
        {"W_gate": ("Dense_0/kernel", (d, mlp)), "W_in": ("Dense_1/kernel", (d, mlp)),
         "W_out": ("Dense_2/kernel", (mlp, d))})
    for layer in range(config.n_layers):
        ours, flax = f"blocks.{layer}", f"transformer_block_{layer}"
        for letter, word, width in (("Q", "query", config.d_head), ("K", "key", config.d_head),
                                    ("V", "value", config.d_head_v)):
            mixer = f"{flax}/sequence_mixer/{word}"
            layout[f"{ours}.attn.W_{letter}"] = (f"{mixer}/kernel", (d, heads, width))
            layout[f"{ours}.attn.b_{letter}"] = (f"{mixer}/bias", (heads, width))
        mixer = f"{flax}/sequence_mixer/out"
        layout[f"{ours}.attn.W_O"] = (f"{mixer}/kernel", (heads, config.d_head_v, d))
        layout[f"{ours}.attn.b_O"] = (f"{mixer}/bias", (d,))
        if config.positions == "t5":
            layout[f"{ours}.attn.rel_pos_bias"] = (
                f"{flax}/relative_embedding/rel_embedding", (heads, config.n_buckets))
        for norm, official in (("ln1", "norm1"), ("ln2", "norm2")):
            layout[f"{ours}.{norm}.w"] = (f"{flax}/{official}/scale", (d,))
            layout[f"{ours}.{norm}.b"] = (f"{flax}/{official}/bias", (d,))
        layout |= {f"{ours}.mlp.{name}": (f"{flax}/state_mixer/{path}", shape)
                   for name, (path, shape) in dense.items()}
    return layout


def _heads_first(name: str) -> bool:
    """Whether the official kernel [D, H, d] stands beside our [H, D, d]."""
    return name.endswith(("attn.W_Q", "attn.W_K", "attn.W_V"))


def listed(names: Iterable[str]) -> str:
    """Return the first names, and how many there are beyond."""
    names = list(names)
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def check_params(config: ModelConfig, params: Mapping[str, np.ndarray], what: str) -> None:
    """Raise `ArtifactError` unless names, shapes and types are the official ones of a model.

    what  what the arrays are, for the error: "parameters", "gradients"
    """
    layout = dict(_layout(config).values())
    missing, unknown = sorted(set(layout) - set(params)), sorted(set(params) - set(layout))
    check(not missing, f"official {what} lack {listed(missing)}", ArtifactError)
    check(not unknown, f"official {what} hold unknown {listed(unknown)}", ArtifactError)
    for path, shape in layout.items():
        value = np.asarray(params[path])
        check(value.shape == shape and value.dtype == np.float32,
              f"{path} of the official {what} has shape {value.shape} and type {value.dtype}; "
              f"expected {shape} and float32", ArtifactError)
        check(bool(np.isfinite(value).all()),
              f"{path} of the official {what} holds NaN or infinite values", ArtifactError)


def model_from_flax(
    official: Mapping[str, Any], params: Mapping[str, np.ndarray]
) -> HookedTransformer:
    """Return our model with the official weights, which must match name by name.

    official  the model configuration with the official field names
    params    Flax paths joined by `/` -> float32 arrays

    `ConfigError` names a field of the configuration, `ArtifactError` a parameter that is
    missing, unknown, of the wrong shape or type, or not finite.
    """
    config = config_from_flax(official, params)
    check_params(config, params, "parameters")
    model = HookedTransformer(config)
    layout = _layout(config)
    state: dict[str, Tensor] = {}
    for name, _ in model.named_parameters():
        tensor = torch.from_numpy(np.array(params[layout[name][0]], order="C"))
        state[name] = tensor.transpose(0, 1) if _heads_first(name) else tensor
    model.load_state_dict(state)
    return model


def params_to_flax(model: HookedTransformer) -> dict[str, np.ndarray]:
    """Return the weights of a model as Flax paths -> arrays, the inverse of `model_from_flax`."""
    config_to_flax(model.cfg)  # raises where there is no official counterpart
    layout = _layout(model.cfg)
    params: dict[str, np.ndarray] = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        official = tensor.transpose(0, 1) if _heads_first(name) else tensor
        params[layout[name][0]] = np.array(official.cpu().numpy(), order="C")
    return params


__all__ = ["MIXERS", "OPTIMIZER", "TRAINING_FIELDS", "check_params", "config_from_flax",
           "config_to_flax", "listed", "model_from_flax", "params_to_flax"]
