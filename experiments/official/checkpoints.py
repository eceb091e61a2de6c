"""Checkpoints of the official implementation become runs, and runs official checkpoints.

    python -m latentcode.experiments.official.checkpoints import official.npz --out runs/official
    python -m latentcode.experiments.official.checkpoints export runs/hyla --out official.npz

A file is an `.npz` of plain arrays: `config_json`, the official model configuration as JSON, and
the parameters under Flax paths joined by `/`, below `param/`.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import tyro

from latentcode.config import (
    LanguageConfig,
    LogicConfig,
    RunConfig,
    SravenConfig,
    TaskConfig,
    TrainingConfig,
)
from latentcode.errors import ArtifactError, RunError, check, check_choice
from latentcode.files.storage import read_json, replace_file
from latentcode.models.config import ATTENTION_KINDS, ModelConfig, kind_of
from latentcode.models.transformer import HookedTransformer
from latentcode.presets import preset
from latentcode.runs import Run
from latentcode.runs.run import load_run
from latentcode.training.state import make_optimizer

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


def import_checkpoint(
    file: tyro.conf.Positional[Path], out: Path, *,
    problem: Literal["logic", "sraven"] | None = None, n_terms: int | None = None,
    unpermuted: bool = False, held_out: Path | None = None, step: int | None = None,
    overwrite: bool = False,
) -> Run:
    """Make a run folder of official weights; its model can be loaded, read and probed.

    Training settings come from the file where it has them and are the paper's otherwise;
    `provenance.json` says which. Training cannot go on: the state of the optimiser is not there.

    Args:
        file: Official weights, an `.npz` (docs/official.md says how to make one).
        out: Folder of the run.
        problem: What the model was trained on; default: what its dimensions tell.
        n_terms: Fuzzy logic: number of terms; default: 2.
        unpermuted: SRAVEN: the features were not permuted.
        held_out: JSON list of the combinations (lists of indices) that were held out of training;
            default: a new draw, on which scores on `ood` are not what they claim.
        step: Number of updates done; default: as in the file, or 0.
        overwrite: Replace a run that the folder already holds.
    """
    official, arrays = read_npz(file)
    model = model_from_flax(official, below("param/", arrays))
    task: Any = infer_task(model.cfg, problem)
    if n_terms is not None:
        task = replace(task, n_terms=n_terms)
    if unpermuted:
        task = replace(task, permuted=False)
    if held_out is not None:
        task = replace(task, held_out=tuple(map(tuple, read_json(held_out))))
    training = (TrainingConfig() if isinstance(task, LanguageConfig)
                else preset("paper", task.name).training)
    training_known = all(name in official for name in TRAINING_FIELDS)
    if training_known:
        training = replace(
            training, **{ours: official[name] for name, ours in TRAINING_FIELDS.items()})
    if step is None and "step" in arrays:
        step = int(arrays["step"])
    run = Run.create(out, RunConfig(task, model.cfg, training), overwrite=overwrite, imported={
        "file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "step": step,
        "training_known": training_known, "held_out_known": held_out is not None})
    with run.writing():
        # As before a first update: an optimiser without moments, and no random stream.
        run.save_checkpoint(step or 0, model, make_optimizer(model, training), {},
                            extra={"losses": []})
    if not training_known:
        print("training settings are not in the file: config.yaml holds the paper's")
    if held_out is None and hasattr(task, "held_out"):
        print("held-out combinations are not in the file: `ood` is a new draw, and the model may "
              "have been trained on it; pass the original ones with --held-out")
    print(f"wrote run {run.path}")
    return run


def infer_task(
    model: ModelConfig, problem: Literal["logic", "sraven"] | None = None
) -> TaskConfig:
    """Return the task that a model was trained on, as far as its dimensions tell.

    One output is fuzzy logic, several are SRAVEN, and token ids are language. The length of the
    sequences is that of the T5 bias, as in all official configurations. What dimensions do not
    tell (number of terms, permutation, held-out combinations) has the paper's value.

    Raises:
        ConfigError: The dimensions do not fit the problem.
    """
    tokens = model.max_distance
    if model.embedding == "token":
        check(problem is None, f"problem is {problem!r}, but the model takes token ids; expected "
              "none, for language is its only task")
        return LanguageConfig(n_vocabulary=model.d_input, n_tokens=tokens)
    if (problem or ("logic" if model.d_output == 1 else "sraven")) == "logic":
        return LogicConfig(n_variables=model.d_input - 1, n_examples=tokens)
    panels = SravenConfig().grid_size ** 2
    check(tokens % panels == 0, f"relative_position_max_dist is {tokens}; expected a multiple of "
          f"{panels}, the number of panels, so that it tells the number of SRAVEN features")
    return SravenConfig(n_values=model.d_input, n_features=tokens // panels)


def export_checkpoint(
    run: tyro.conf.Positional[str], out: Path, *, step: int | None = None, overwrite: bool = False
) -> Path:
    """Write the weights of a run in the official layout, all or nothing.

    Args:
        run: A run's folder, or a model of the zoo.
        out: File to write, in `.npz` format.
        step: Checkpoint; default: the newest.
        overwrite: Replace an existing file.
    """
    source = load_run(run)
    check(out.suffix == ".npz", f"out is {out}; expected a name that ends in .npz", RunError)
    check(overwrite or not out.exists(), f"{out} exists already; choose another name or "
          "overwrite it", RunError)
    official, imported = config_to_flax(source.config.model), source.imported
    if imported is None or imported["training_known"]:
        settings = source.config.training
        official |= {name: getattr(settings, ours) for name, ours in TRAINING_FIELDS.items()}
        official |= OPTIMIZER
    chosen = source.load_checkpoint(step).step
    arrays: dict[str, Any] = {f"param/{path}": value for path, value in
                              params_to_flax(source.load_model(chosen)).items()}
    arrays["config_json"] = np.array(json.dumps(official))
    if imported is None or imported["step"] is not None:
        arrays["step"] = np.array(chosen)
    with replace_file(out) as temporary:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
    print(f"wrote weights {out}")
    return out


def read_npz(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the configuration and the arrays of an official file; pickles are refused."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = dict(file)
        return json.loads(str(arrays.pop("config_json"))), arrays
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ArtifactError(
            f"{path} cannot be read ({error}); expected an .npz of plain arrays with config_json. "
            "A pickle runs whatever code it contains and is never loaded: docs/official.md says "
            "how to convert one") from None


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
    kind: dict[str, Any] = ATTENTION_KINDS[MIXERS[official["sequence_mixer"]]]
    return ModelConfig(
        **kind, feedforward=STATE_MIXERS[official["state_mixer"]],  # type: ignore[arg-type]
        d_input=d_input, d_output=d_input if output < 1 else output,
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


def other_layout(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Exchange our [H, D, d] for the official [D, H, d], or back, in kernels that have it."""
    return tensor.transpose(0, 1) if name.endswith(("W_Q", "W_K", "W_V")) else tensor


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
    model.load_state_dict({
        name: other_layout(name, torch.from_numpy(np.array(params[paths[name]], order="C")))
        for name, _ in model.named_parameters()})
    return model


def params_to_flax(model: HookedTransformer) -> dict[str, np.ndarray]:
    """Return the weights of a model as Flax paths -> arrays, the inverse of `model_from_flax`."""
    config_to_flax(model.cfg)  # raises where there is no official counterpart
    paths = flax_paths(model.cfg)
    return {paths[name]: np.array(other_layout(name, parameter.detach()).cpu().numpy(), order="C")
            for name, parameter in model.named_parameters()}


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {"import": import_checkpoint, "export": export_checkpoint})
