"""Do our models give the official implementation's numbers? From its weights, step by step.

A file is an `.npz` of the official code's inputs, parameters and outputs: `param/...`, `x`,
`logits`, `attn_weights_{l}`, `attn_bias_{l}` and `config_json`; or, for optimisation,
`param0/...`, `grad0/...`, `paramN/...`, `x`, `y`, `losses`, `lr_schedule_...` and `config_json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.config import TrainingConfig
from latentcode.errors import ArtifactError, LatentCodeError, check
from latentcode.models.flax import model_from_flax, params_to_flax
from latentcode.models.positions import relative_bias
from latentcode.models.transformer import HookedTransformer
from latentcode.training.optimizer import learning_rate, make_optimizer, set_learning_rate

PRECISIONS: dict[str, torch.dtype] = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Tolerance:
    """|ours - official| <= absolute + relative * |official| for every element."""

    absolute: float
    relative: float = 0.0

    def excess(self, ours: np.ndarray, official: np.ndarray) -> float:
        """Return the largest error in units of what is allowed; NaN counts as infinite."""
        allowed = self.absolute + self.relative * np.abs(official)
        ratio = np.abs(ours - official) / allowed
        return float(np.nan_to_num(ratio, nan=np.inf).max(initial=0.0))


FORWARD: dict[str, Tolerance] = {
    "float64": Tolerance(5e-5), "float32": Tolerance(1e-4, 1e-4)}
"""Of logits, attention weights and bias. The official numbers are float32 themselves."""

TRAINING: dict[str, dict[str, Tolerance]] = {
    "losses": {"float64": Tolerance(0.0, 5e-5), "float32": Tolerance(0.0, 1e-4)},
    "gradients": {"float64": Tolerance(1e-5, 1e-4), "float32": Tolerance(1e-5, 1e-3)},
    "schedule": {"float64": Tolerance(1e-9, 1e-6), "float32": Tolerance(1e-9, 1e-6)},
    "parameters": {"float64": Tolerance(1e-5), "float32": Tolerance(1e-4)},
}
"""Of the optimiser steps. Adam divides by the size of a gradient, so that rounding noise in small
gradients is amplified: float32 is allowed ten times what float64 is."""


@dataclass(frozen=True)
class Comparison:
    """The largest error of one quantity in one file and precision."""

    file: str
    quantity: str
    precision: str
    largest_error: float
    excess: float
    """Largest error in units of the tolerance; at most 1 where the numbers agree."""

    @property
    def agrees(self) -> bool:
        return self.excess <= 1.0


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Read an `.npz` of plain arrays; pickled content is refused.

    Raises `ArtifactError` that names the file.
    """
    path = Path(path)
    check(path.is_file(), f"{path} does not exist", ArtifactError)
    check(path.suffix != ".pkl", f"{path} is a pickle, which runs whatever code it contains and "
          "is never loaded here. In the environment that wrote it, flatten the parameters with "
          "flax.traverse_util.flatten_dict(params, sep='/') and save them, together with "
          "config_json=json.dumps(dict(config.model)), by numpy.savez", ArtifactError)
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except Exception as error:  # numpy, zipfile and zlib each have their own
        raise ArtifactError(f"{path} is not a readable .npz of plain arrays: {error}") from None


def read_config(data: Mapping[str, np.ndarray], path: str | Path) -> dict[str, Any]:
    """Return the official configuration stored as `config_json`."""
    check("config_json" in data, f"{path} lacks config_json, the official model configuration",
          ArtifactError)
    try:
        config = json.loads(str(data["config_json"]))
    except ValueError as error:
        raise ArtifactError(f"{path}: config_json is not JSON: {error}") from None
    check(isinstance(config, dict), f"{path}: config_json is {config!r}; expected a mapping",
          ArtifactError)
    assert isinstance(config, dict)
    return config


def with_prefix(data: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the entries below a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in data.items() if k.startswith(prefix)}


def compare(path: str | Path) -> list[Comparison]:
    """Import the file's weights, run our model, and compare everything that it holds.

    Raises `LatentCodeError` saying what is wrong with a file that cannot be run.
    """
    data = read_npz(path)
    config = read_config(data, path)
    name = Path(path).name
    try:
        run = _compare_training if "losses" in data else _compare_forward
        return [comparison for precision in PRECISIONS
                for comparison in run(name, data, config, precision)]
    except LatentCodeError as error:
        raise type(error)(f"{path}: {error}") from None
    except KeyError as error:
        raise ArtifactError(f"{path} lacks {error.args[0]}") from None


def _compare_forward(
    name: str, data: Mapping[str, np.ndarray], config: Mapping[str, Any], precision: str
) -> list[Comparison]:
    model = model_from_flax(config, with_prefix(data, "param/")).eval().to(PRECISIONS[precision])
    x = _inputs(data["x"], PRECISIONS[precision])
    with torch.no_grad():
        logits, cache = model.run_with_cache(x)
    ours: dict[str, list[Tensor]] = {"logits": [logits], "attention": [], "bias": []}
    official: dict[str, list[np.ndarray]] = {
        "logits": [data["logits"]], "attention": [], "bias": []}
    for layer in range(model.cfg.n_layers):
        # Large attention matrices are stored for the first instances only.
        wanted = data[f"attn_weights_{layer}"]
        ours["attention"].append(cache[f"blocks.{layer}.attn.hook_pattern"][:len(wanted)])
        official["attention"].append(wanted)
        table = model.layer(layer).attn.rel_pos_bias
        if table is not None:
            length = x.shape[1]
            ours["bias"].append(relative_bias(
                table, length, length, model.cfg.max_distance).detach())
            official["bias"].append(data[f"attn_bias_{layer}"])
    return [_comparison(name, quantity, precision, FORWARD[precision],
                        [t.numpy() for t in ours[quantity]], official[quantity])
            for quantity in ours if ours[quantity]]


def _inputs(x: np.ndarray, dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    return tensor.to(dtype) if tensor.is_floating_point() else tensor.long()


def _comparison(
    file: str, quantity: str, precision: str, tolerance: Tolerance,
    ours: list[np.ndarray], official: list[np.ndarray],
) -> Comparison:
    for mine, theirs in zip(ours, official, strict=True):
        check(mine.shape == theirs.shape, f"{quantity} has shape {theirs.shape}; expected "
              f"{mine.shape}, the shape that the parameters give", ArtifactError)
    errors = [float(np.nan_to_num(np.abs(m - t), nan=np.inf).max(initial=0.0))
              for m, t in zip(ours, official, strict=True)]
    excess = [tolerance.excess(m, t) for m, t in zip(ours, official, strict=True)]
    return Comparison(file, quantity, precision, max(errors), max(excess))


def _compare_training(
    name: str, data: Mapping[str, np.ndarray], config: Mapping[str, Any], precision: str
) -> list[Comparison]:
    """Run the recorded optimiser steps from the recorded weights on the recorded batches."""
    dtype = PRECISIONS[precision]
    settings = TrainingConfig(
        steps=int(config["train_steps"]), batch_size=int(config["batch"]),
        learning_rate=float(config["lr"]), weight_decay=float(config["weight_decay"]),
        warmup_steps=int(config["warmup_steps"]))
    check(tuple(config[k] for k in ("b1", "b2", "eps")) == (0.9, 0.999, 1e-8),
          "the optimiser is not AdamW with b1 0.9, b2 0.999 and eps 1e-8")
    model = model_from_flax(config, with_prefix(data, "param0/")).to(dtype).train()
    check(model.cfg.attention_dropout == 0.0, "attention_dropout_rate is "
          f"{model.cfg.attention_dropout}; expected 0, so that the steps are deterministic")
    optimizer = make_optimizer(model, settings)
    n_steps = len(data["losses"])
    losses, norms, gradients = [], [], {}
    for step in range(n_steps):
        set_learning_rate(optimizer, learning_rate(step, settings))
        x, y = _inputs(data["x"][step], dtype), _inputs(data["y"][step], dtype)
        optimizer.zero_grad()
        loss = (model(x)[:, -1] - y).square().mean()
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norms.append(float(torch.nn.utils.get_total_norm(grads)))
        if step == 0:
            gradients = _gradients_to_flax(model)
        losses.append(loss.item())
        optimizer.step()
    final = params_to_flax(model)
    wanted_final = with_prefix(data, f"param{n_steps}/")
    wanted_gradients = with_prefix(data, "grad0/")
    schedule = next(k for k in data if k.startswith("lr_schedule"))
    rates = [learning_rate(step, settings) for step in range(len(data[schedule]))]
    return [
        _comparison(name, quantity, precision, TRAINING[quantity][precision], ours, official)
        for quantity, ours, official in (
            ("losses", [np.array(losses)], [data["losses"]]),
            ("gradients", [np.array(norms), *_values(gradients, wanted_gradients, model)],
             [data["grad_norms"], *_values(wanted_gradients, gradients, model)]),
            ("schedule", [np.array(rates)], [data[schedule]]),
            ("parameters", _values(final, wanted_final, model),
             _values(wanted_final, final, model)))]


def _gradients_to_flax(model: HookedTransformer) -> dict[str, np.ndarray]:
    """Return the gradients under the official names."""
    holder = HookedTransformer(model.cfg).to(next(model.parameters()).dtype)
    for target, parameter in zip(holder.parameters(), model.parameters(), strict=True):
        assert parameter.grad is not None
        target.data.copy_(parameter.grad)
    return params_to_flax(holder)


def _values(
    params: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], model: HookedTransformer
) -> list[np.ndarray]:
    """Return the arrays in the order of their names, which both mappings must share.

    Under softmax the key bias shifts all scores of a query alike: its true gradient is zero,
    Adam amplifies what rounding leaves of it, and it is not compared.
    """
    lost = sorted(set(other) ^ set(params))
    check(not lost, f"these parameters are not on both sides: {', '.join(lost)}", ArtifactError)
    softmax = model.cfg.normalization == "softmax"
    return [params[k] for k in sorted(params)
            if not (softmax and k.endswith("sequence_mixer/key/bias"))]
