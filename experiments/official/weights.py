"""Weights of the official JAX/Flax implementation, in and out.

A file is an `.npz` of plain arrays: `config_json`, the official model configuration as JSON, and
the parameters under Flax paths joined by `/`, below `param/`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from latentcode.errors import ArtifactError, check, check_choice
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, kind_of
from latentcode.models.transformer import HookedTransformer

Arrays = Mapping[str, np.ndarray]

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

ONLY: dict[str, tuple[Any, ...]] = {
    "norm": ("layer",), "block_type": ("default",), "use_absolute_position": (False,),
    "share_params_over_layers": (False,), "normalize_qk": (False,), "dropout_rate": (0.0,),
    "moe_num": (None, -1), "moe_top_k": (None, -1)}
"""Official fields that our model has no counterpart for, with the only values it can express."""

REQUIRED = ("emb_dim", "mlp_dim", "num_heads", "num_layers", "qk_dim", "v_dim",
            "relative_position_max_dist", "use_causal_mask", "use_relative_position",
            "sequence_mixer", "state_mixer")
OPTIONAL = ("output_dim", "vocab_size", "attention_dropout_rate")


def read_npz(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the configuration and the arrays of an official file; pickles are refused."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = dict(file)
        config = json.loads(str(arrays.pop("config_json")))
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ArtifactError(
            f"{path} cannot be read ({error}); expected an .npz of plain arrays with config_json. "
            "A pickle runs whatever code it contains and is never loaded: docs/official.md says "
            "how to convert one") from None
    check(isinstance(config, dict), f"config_json of {path} is {config!r}; expected a mapping",
          ArtifactError)
    return config, arrays


def below(prefix: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """Return the arrays below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in arrays.items()
            if key.startswith(prefix)}


def config_from_flax(official: Mapping[str, Any], params: Arrays) -> ModelConfig:
    """Translate an official model configuration; the input width is read off the embedding.

    `TRAINING_FIELDS` and `OPTIMIZER` may stand beside it. `ConfigError` names a field that is
    missing, unknown, or of a value that our model cannot express.
    """
    vocabulary, output = official.get("vocab_size"), official.get("output_dim", -1)
    missing = [name for name in REQUIRED if name not in official]
    unknown = sorted({*official} - {*REQUIRED, *OPTIONAL, *ONLY, *TRAINING_FIELDS, *OPTIMIZER})
    check(not missing, f"official configuration lacks {', '.join(missing)}")
    check(not unknown, f"official configuration has unknown field(s) {', '.join(unknown)}")
    for name, values in ONLY.items():
        check(official.get(name, values[0]) in values,
              f"official {name} is {official.get(name)!r}; only {values[0]!r} can be imported")
    check_choice("official sequence_mixer", official["sequence_mixer"], MIXERS)
    check_choice("official state_mixer", official["state_mixer"], STATE_MIXERS)
    check(output >= 1 or vocabulary is not None,
          f"official output_dim is {output!r}; expected a whole number of at least 1")
    embedding = "embedding/kernel" if vocabulary is None else "embedding/embedding"
    check(embedding in params, f"official parameters lack {embedding}", ArtifactError)
    d_input, heads = len(params[embedding]), official["num_heads"]
    for name in ("qk_dim", "v_dim"):
        check(official[name] % heads == 0, f"official {name} is {official[name]}; expected a "
              f"multiple of num_heads = {heads}")
    names: dict[str, Any] = {
        **ATTENTION_KINDS[MIXERS[official["sequence_mixer"]]],
        "feedforward": STATE_MIXERS[official["state_mixer"]]}
    return ModelConfig(
        **names, d_input=d_input, d_output=d_input if output < 1 else output,
        n_layers=official["num_layers"], d_model=official["emb_dim"], n_heads=heads,
        d_head=official["qk_dim"] // heads, d_head_v=official["v_dim"] // heads,
        d_mlp=official["mlp_dim"],
        positions="t5" if official["use_relative_position"] else "none",
        n_buckets=official["relative_position_max_dist"],
        max_distance=official["relative_position_max_dist"], causal=official["use_causal_mask"],
        # Every official configuration leaves this out, which means 0.1.
        attention_dropout=official.get("attention_dropout_rate", 0.1),
        embedding="dense" if vocabulary is None else "token",
        readout="tied" if output < 1 else "dense")


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
        **{name: values[0] for name, values in ONLY.items()}}
    if config.embedding == "token":
        official["vocab_size"] = config.d_input
    return official


def flax_paths(config: ModelConfig) -> dict[str, str]:
    """Return the Flax path of every parameter of a model, by our name."""
    paths = {"ln_final.w": "decoder_norm/scale", "ln_final.b": "decoder_norm/bias",
             "embed.W_E": "embedding/kernel", "embed.b_E": "embedding/bias",
             "unembed.W_U": "logitdense/kernel", "unembed.b_U": "logitdense/bias"}
    if config.embedding == "token":
        paths["embed.W_E"] = "embedding/embedding"
    dense = ({"W_in": "Dense_0/kernel", "b_in": "Dense_0/bias",
              "W_out": "Dense_1/kernel", "b_out": "Dense_1/bias"}
             if config.feedforward == "gelu" else
             {"W_gate": "Dense_0/kernel", "W_in": "Dense_1/kernel", "W_out": "Dense_2/kernel"})
    for layer in range(config.n_layers):
        ours, block = f"blocks.{layer}", f"transformer_block_{layer}"
        for letter, word in (("Q", "query"), ("K", "key"), ("V", "value"), ("O", "out")):
            paths[f"{ours}.attn.W_{letter}"] = f"{block}/sequence_mixer/{word}/kernel"
            paths[f"{ours}.attn.b_{letter}"] = f"{block}/sequence_mixer/{word}/bias"
        paths[f"{ours}.attn.rel_pos_bias"] = f"{block}/relative_embedding/rel_embedding"
        for norm, official in (("ln1", "norm1"), ("ln2", "norm2")):
            paths[f"{ours}.{norm}.w"] = f"{block}/{official}/scale"
            paths[f"{ours}.{norm}.b"] = f"{block}/{official}/bias"
        paths |= {f"{ours}.mlp.{name}": f"{block}/state_mixer/{path}"
                  for name, path in dense.items()}
    return paths


def _heads_first(name: str) -> bool:
    """Whether the official kernel [D, H, d] stands beside our [H, D, d]."""
    return name.endswith(("attn.W_Q", "attn.W_K", "attn.W_V"))


def model_from_flax(official: Mapping[str, Any], params: Arrays) -> HookedTransformer:
    """Return our model with the official weights, which must match name by name.

    Args:
        official: The model configuration with the official field names.
        params: Flax paths joined by `/` -> float32 arrays.

    Raises:
        ConfigError: A field of the configuration is missing, unknown or cannot be expressed.
        ArtifactError: A parameter is missing, unknown, of the wrong shape or type, or not finite.
    """
    model = HookedTransformer(config_from_flax(official, params))
    expected = params_to_flax(model)
    missing, unknown = sorted({*expected} - {*params}), sorted({*params} - {*expected})
    check(not missing, f"official parameters lack {', '.join(missing)}", ArtifactError)
    check(not unknown, f"official parameters hold unknown {', '.join(unknown)}", ArtifactError)
    for path, value in expected.items():
        check(params[path].shape == value.shape and params[path].dtype == np.float32,
              f"official {path} has shape {params[path].shape} and type {params[path].dtype}; "
              f"expected {value.shape} and float32", ArtifactError)
        check(bool(np.isfinite(params[path]).all()),
              f"official {path} holds NaN or infinite values", ArtifactError)
    paths = flax_paths(model.cfg)
    state = {name: torch.from_numpy(np.array(params[paths[name]], order="C"))
             for name, _ in model.named_parameters()}
    model.load_state_dict({name: tensor.transpose(0, 1) if _heads_first(name) else tensor
                           for name, tensor in state.items()})
    return model


def params_to_flax(model: HookedTransformer) -> dict[str, np.ndarray]:
    """Return the weights of a model as Flax paths -> arrays, the inverse of `model_from_flax`."""
    config_to_flax(model.cfg)  # raises where there is no official counterpart
    paths = flax_paths(model.cfg)
    params: dict[str, np.ndarray] = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        official = tensor.transpose(0, 1) if _heads_first(name) else tensor
        params[paths[name]] = np.array(official.cpu().numpy(), order="C")
    return params
