"""Variances of generated weights at initialisation, and gradient norms over training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.config import RunConfig
from latentcode.config.presets import preset
from latentcode.errors import check
from latentcode.experiments.evidence.found import Found, all_tables
from latentcode.models.config import TABLE_A1
from latentcode.models.hypernetwork import value_network
from latentcode.models.modes import evaluating
from latentcode.models.transformer import HookedTransformer
from latentcode.progress import Progress
from latentcode.seeds import make_generator
from latentcode.tasks import make_task
from latentcode.training.state import TrainingState

TASKS: tuple[str, ...] = ("logic", "sraven")
ATTENTIONS: tuple[str, ...] = tuple(k for k in TABLE_A1 if not k.endswith("_moe"))
"""The kinds that differ in their attention; experts change nothing before the feed-forward."""
INSTANCES, PAIRS = 32, 512
"""Instances that initial models see, and (instance, query, key) whose weights are generated."""
WINDOW = 20
"""Updates whose gradient norms make one row."""
CODE_WEIGHTS = re.compile(r"attn\.(W|b)_(Q|K)|attn\.rel_pos_bias")
"""Parameters that determine the codes; the others of a layer's attention make the values."""


def variances(
    work: Path, *, size: str, seeds: int, kinds: Sequence[str] = ATTENTIONS
) -> dict[str, pd.DataFrame]:
    """Return `variance`, of initial models: one row per task, kind, seed, layer and quantity.

    `measured` is a mean over pairs, beside its `target` and their `ratio`; `spread` is the standard
    deviation over pairs over the mean. `weights_i` is layer i of the generated value network (W_qk
    itself where it is one matrix) with target 1 / fan_in, `squared_code` is sum_h a_h^2 with target
    H, `output` is what the attention adds to the residual stream, with target 1, the variance of
    its input.

    size   preset of the models
    seeds  number of seeds of each kind
    """
    check(seeds >= 1, f"seeds is {seeds}; expected at least 1")
    return {"variance": pd.DataFrame([
        {"task": task, "kind": kind, "seed": seed, "layer": layer, "quantity": quantity,
         **_variance(values.double(), target)}
        for task in TASKS for kind in kinds for seed in range(seeds)
        for layer, quantity, values, target in initial_variances(preset(size, task, kind), seed)])}


def gradients(
    work: Path, *, size: str, seeds: int, steps: int, kinds: Sequence[str] = tuple(TABLE_A1),
    progress: Progress | None = None,
) -> dict[str, pd.DataFrame]:
    """Return `gradients`: a row per kind, seed, layer, part and window of updates that ends at
    `step`, with `mean`, `smallest` and `largest` norm of the gradients, and the mean loss.

    Parts of a layer: `block`, all of it; `code`, the weights that the codes come from (queries,
    keys, position bias); `value`, those of values and outputs. Layer and part `all`: the whole
    model. The schedule of the learning rate is that of a training of this length, with a tenth of
    it for the warm-up. `ConfigError` for `steps` that are no multiple of `WINDOW`.
    """
    check(seeds >= 1, f"seeds is {seeds}; expected at least 1")
    check(steps >= WINDOW and steps % WINDOW == 0,
          f"steps is {steps}; expected a multiple of {WINDOW}")
    torch.set_num_threads(1)  # two are slower at this size, and would vary the last bits
    rows: list[dict[str, Any]] = []
    for i, kind in enumerate(kinds):
        for seed in range(seeds):
            config = preset(size, "logic", kind)
            training = replace(config.training, steps=steps, warmup_steps=steps // 10, seed=seed)
            rows += [{"kind": kind, **row} for row in gradient_norms(
                replace(config, training=training), steps // WINDOW)]
            if progress is not None:
                progress(i * seeds + seed + 1, len(kinds) * seeds)
    return {"gradients": pd.DataFrame(rows)}


def tables(found: Found) -> dict[str, pd.DataFrame]:
    """Return what was measured, `norms` and `kinds`."""
    measured = all_tables(found)
    return {**measured, "norms": norms(measured["gradients"]), "kinds": kinds_of(**measured)}


def norms(gradients: pd.DataFrame) -> pd.DataFrame:
    """Return the norm of the gradients of each layer and part, a column per kind: the median over
    updates of the geometric mean over seeds."""
    return gradients.pivot_table(
        index=["layer", "part", "step"], columns="kind", values="mean", aggfunc=geometric
    ).groupby(level=["layer", "part"]).median().reset_index()


def kinds_of(variance: pd.DataFrame, gradients: pd.DataFrame) -> pd.DataFrame:
    """Return, per kind, the variances over their targets (geometric means over tasks, layers and
    seeds) and the gradient norm of the whole model: median and largest."""
    ratios = variance.pivot_table(index="kind", columns="quantity", values="ratio",
                                  aggfunc=geometric, sort=False)
    whole = gradients[gradients["part"] == "all"].groupby("kind", sort=False)
    return ratios.join(pd.DataFrame({"median_norm": whole["mean"].median(),
                                     "largest_norm": whole["largest"].max()}),
                       how="right").rename_axis("kind").reset_index()


def geometric(values: pd.Series) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.log(values).mean()))


def initial_variances(config: RunConfig, seed: int) -> Iterator[tuple[int, str, Tensor, float]]:
    """Yield (layer, quantity, value of each pair, target) of the initial model of a seed.

    For a network without biases whose weights have variance 1 / fan_in, inputs of variance 1 give
    outputs of variance 1: the target of each generated layer. Measured on `PAIRS` codes that the
    model has for random instances, the output on all its queries.
    """
    generator = make_generator(seed, "initial variances")
    model = HookedTransformer(config.model, seed=seed)
    batch = make_task(config.task).sample("train", INSTANCES, generator)
    with evaluating(model):
        _, cache = model.run_with_cache(batch.inputs)
        for layer in range(config.model.n_layers):
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"]  # [B, H, Q, K]
            code = pattern.permute(0, 2, 3, 1).flatten(0, 2)
            code = code[torch.randint(len(code), (PAIRS,), generator=generator)]
            yield layer, "squared_code", code.square().sum(-1), float(config.model.n_heads)
            network = value_network(model, layer, code)
            # With the nonlinearity on each head's values no code enters the first layer.
            first = 1 if config.model.value_network == "linear" and len(network.weights) > 1 else 0
            for i, weight in enumerate(network.weights[first:], first):
                # The initialiser draws with mean 0.
                yield layer, f"weights_{i + 1}", weight.square().mean((-2, -1)), (
                    1.0 / weight.shape[-2])
            yield layer, "output", cache[f"blocks.{layer}.hook_attn_out"].var(-1).flatten(), 1.0


def gradient_norms(config: RunConfig, windows: int) -> Iterator[dict[str, Any]]:
    """Train for `windows` times `WINDOW` updates; yield rows of `gradients` without the kind.

    The norms are those of the gradients that the updates of ordinary training used, before any
    clipping, which `config` must not have.
    """
    check(config.training.grad_clip is None, f"training.grad_clip is {config.training.grad_clip}; "
          "expected None, since clipping would change the norms")
    state = TrainingState.start(config)
    parameters = dict(state.model.named_parameters())
    parts = _parts(list(parameters), config.model.n_layers)
    belongs = torch.tensor([[float(name in names) for name in parameters]
                            for names in parts.values()])  # [part, parameter]
    for _ in range(windows):
        norms = []
        state.losses.clear()
        for _ in range(WINDOW):
            state.update()
            gradients = [p.grad for p in parameters.values() if p.grad is not None]
            norms.append(belongs @ torch.stack(torch._foreach_norm(gradients)).square())
        table = torch.stack(norms).double().sqrt()  # [window, part]
        loss = float(np.mean(state.recent_losses()[0]))
        for (layer, part), column in zip(parts, table.T, strict=True):
            yield {"seed": config.training.seed, "layer": layer, "part": part,
                   "step": state.step, "mean": float(column.mean()),
                   "smallest": float(column.min()), "largest": float(column.max()), "loss": loss}


def _parts(names: Sequence[str], n_layers: int) -> dict[tuple[str, str], list[str]]:
    """Return (layer, part) -> the names of its parameters."""
    parts = {("all", "all"): list(names)}
    for layer in range(n_layers):
        block = [name for name in names if name.startswith(f"blocks.{layer}.")]
        code = [name for name in block if CODE_WEIGHTS.search(name)]
        parts[str(layer), "block"], parts[str(layer), "code"] = block, code
        parts[str(layer), "value"] = [name for name in block
                                      if ".attn." in name and name not in code]
    return parts


def _variance(values: Tensor, target: float) -> dict[str, float]:
    mean = float(values.mean())
    return {"measured": mean, "target": target, "ratio": mean / target,
            "spread": float(values.std()) / mean}
