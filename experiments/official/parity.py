"""Do our models give the official implementation's numbers? From its weights, step by step.

    python -m latentcode.experiments.official.parity FILE.npz ...

A file is an `.npz` of the official code's inputs, parameters and outputs: `config_json`,
`param/...`, `x`, `logits` and `attn_weights_{l}`, those of the first instances perhaps; or, for N
optimiser steps, `config_json`, `param0/...`, `paramN/...`, `x`, `y`, `losses`, `grad_norms` and
`lr_schedule...`. The exit status is 1 if a number differs by more than its tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import tyro
from torch import Tensor

from latentcode.config import LogicConfig, SravenConfig, TrainingConfig
from latentcode.errors import check
from latentcode.experiments.official.checkpoints import (
    OPTIMIZER,
    TRAINING_FIELDS,
    Arrays,
    below,
    model_from_flax,
    params_to_flax,
    read_npz,
)
from latentcode.figures.text import markdown_of
from latentcode.tasks import Batch, make_task
from latentcode.training.state import BETAS, learning_rate, make_optimizer, training_step

PRECISIONS: dict[str, torch.dtype] = {"float64": torch.float64, "float32": torch.float32}

TOLERANCES: dict[str, dict[str, tuple[float, float]]] = {
    "logits": {"float64": (5e-5, 0.0), "float32": (1e-4, 1e-4)},
    "attention": {"float64": (5e-5, 0.0), "float32": (1e-4, 1e-4)},
    "losses": {"float64": (0.0, 2e-5), "float32": (0.0, 5e-5)},
    "norms": {"float64": (0.0, 1e-3), "float32": (0.0, 1e-3)},
    "schedule": {"float64": (1e-9, 1e-6), "float32": (1e-9, 1e-6)},
    "parameters": {"float64": (1e-5, 0.0), "float32": (1e-4, 0.0)},
}
"""Quantity -> precision -> (absolute, relative): |ours - official| <= absolute + relative *
|official| for every element. The official numbers are float32 themselves. Adam divides by the size
of a gradient, so that rounding noise in small gradients is amplified and grows from step to step:
after eight steps losses differ by 6e-7 of themselves in float64, and norms of gradients by 2e-6."""


Pairs = dict[str, list[tuple[Any, np.ndarray]]]
"""Quantity -> (ours, official), arrays of equal shape."""


def compare(official: Mapping[str, Any], arrays: Arrays) -> pd.DataFrame:
    """Run our model from the official weights, and compare everything that a file holds.

    Returns:
        A row per precision and quantity: the largest error, how many tolerances it has, and whether
        the numbers agree, with at most one.
    """
    run = optimiser_steps if "losses" in arrays else forward_pass
    rows = []
    for precision, dtype in PRECISIONS.items():
        for quantity, pairs in run(official, arrays, dtype).items():
            absolute, relative = TOLERANCES[quantity][precision]
            error, excess = 0.0, 0.0
            for ours, theirs in pairs:
                apart = np.abs(np.asarray(ours, np.float64) - theirs.astype(np.float64))
                ratio = apart / (absolute + relative * np.abs(theirs))
                error = max(error, float(np.nan_to_num(apart, nan=np.inf).max()))
                excess = max(excess, float(np.nan_to_num(ratio, nan=np.inf).max()))
            rows.append((precision, quantity, error, excess, excess <= 1.0))
    return pd.DataFrame(rows, columns=["precision", "quantity", "error", "tolerances", "agrees"])


def forward_pass(official: Mapping[str, Any], arrays: Arrays, dtype: torch.dtype) -> Pairs:
    """Compute logits and patterns from the recorded weights on the recorded inputs."""
    model = model_from_flax(official, below("param/", arrays)).eval().to(dtype)
    with torch.no_grad():
        logits, cache = model.run_with_cache(inputs(arrays, dtype))
    patterns = []
    for layer in range(model.cfg.n_layers):
        weights = arrays[f"attn_weights_{layer}"]
        patterns.append((cache[f"blocks.{layer}.attn.hook_pattern"][:len(weights)], weights))
    return {"logits": [(logits, arrays["logits"])], "attention": patterns}


def optimiser_steps(official: Mapping[str, Any], arrays: Arrays, dtype: torch.dtype) -> Pairs:
    """Run the recorded optimiser steps from the recorded weights on the recorded batches."""
    for name, value in OPTIMIZER.items():
        check(official[name] == value, f"official {name} is {official[name]!r}; expected {value}")
    settings = TrainingConfig(**{ours: official[name] for name, ours in TRAINING_FIELDS.items()})
    model = model_from_flax(official, below("param0/", arrays)).to(dtype).train()
    check(model.cfg.attention_dropout == 0.0, "attention_dropout_rate is "
          f"{model.cfg.attention_dropout}; expected 0, so that the steps are deterministic")
    y = torch.from_numpy(arrays["y"])
    task = make_task(LogicConfig() if y.is_floating_point()
                     else SravenConfig(n_features=y.shape[-1]))
    y = y.to(dtype) if y.is_floating_point() else y.long()
    x, optimizer = inputs(arrays, dtype), make_optimizer(model, settings)
    losses, norms = [], []
    for step in range(len(arrays["losses"])):
        set_rates(optimizer, step, settings)
        batch = Batch(x[step], y[step], torch.zeros(x.shape[1], dtype=torch.long))
        losses.append(float(training_step(model, task, batch, optimizer)))
        # The update leaves the gradients as they were.
        norms.append(float(torch.nn.utils.get_total_norm(
            [p.grad for p in model.parameters() if p.grad is not None])))
    rates = next(value for key, value in arrays.items() if key.startswith("lr_schedule"))
    final = below(f"param{len(losses)}/", arrays)
    # Under softmax the key bias shifts all scores of a query alike: its true gradient is zero, and
    # Adam amplifies what rounding leaves of it.
    softmax = model.cfg.normalization == "softmax"
    return {
        "losses": [(losses, arrays["losses"])], "norms": [(norms, arrays["grad_norms"])],
        "schedule": [([learning_rate(step, settings) for step in range(len(rates))], rates)],
        "parameters": [(value, final[path]) for path, value in params_to_flax(model).items()
                       if not (softmax and path.endswith("sequence_mixer/key/bias"))]}


def inputs(arrays: Arrays, dtype: torch.dtype) -> Tensor:
    """Return the recorded inputs, features or token ids."""
    x = torch.from_numpy(arrays["x"])
    return x.to(dtype) if x.is_floating_point() else x.long()


def optax_corrections(count: int) -> tuple[float, float]:
    """1 - beta^t for both betas at update t, from 1, as optax has it: rounded to float32.

    Its `tree_bias_correction` takes `1 - decay**count` of a Python float and an int32; compiled,
    that is a power and a difference of float32 numbers. The difference cancels: for 0.999 it is
    off by 1.3e-5 of itself at t = 1 and by 2e-5 at t = 2 (checked with jax 0.10.2, optax 0.2.8).
    """
    first, second = (float(np.float32(1) - np.float32(float(np.float32(beta)) ** count))
                     for beta in BETAS)
    return first, second


def set_rates(optimizer: torch.optim.Optimizer, step: int, settings: TrainingConfig) -> None:
    """Make the coming update of our AdamW, the `step`-th from 0, that of optax.

    Training corrects exactly, by c, and optax by c'. With s = sqrt(c2' / c2),
    lr / c1' m / (sqrt(v / c2') + eps) = (lr s c1 / c1') / c1 m / (sqrt(v / c2) + eps s):
    the same update with another learning rate (eps, off by 1e-5 of itself, can stay). The weight
    decay, which the learning rate multiplies, makes up for it.
    """
    first, second = (theirs / (1.0 - beta ** (step + 1))
                     for theirs, beta in zip(optax_corrections(step + 1), BETAS, strict=True))
    scale = sqrt(second) / first
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(step, settings) * scale
        if group["weight_decay"]:  # not masked
            group["weight_decay"] = settings.weight_decay / scale


def main(files: tyro.conf.Positional[tuple[Path, ...]]) -> None:
    """Compare our models with recorded outputs of the official code; print a table."""
    table = pd.concat([compare(*read_npz(path)).assign(file=path.name) for path in files])
    shown = table.assign(
        error=table["error"].map("{:.1e}".format), tolerances=table["tolerances"].map(
            "{:.2g}".format), agrees=table["agrees"].map({True: "agrees", False: "**differs**"}))
    print(markdown_of(shown[["file", *table.columns[:-1]]]))
    raise SystemExit(0 if table["agrees"].all() else 1)


if __name__ == "__main__":
    tyro.cli(main)
