"""What is to be reached on an H100 or H200, and what such a GPU allows at most."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from latentcode.config import RunConfig
from latentcode.errors import ArtifactError
from latentcode.models.transformer import HookedTransformer

PEAKS: dict[str, tuple[float, dict[str, float]]] = {
    "H100": (3.35e12, {"bfloat16": 989e12, "float32": 67e12, "tf32": 494e12}),
    "H200": (4.8e12, {"bfloat16": 989e12, "float32": 67e12, "tf32": 494e12})}
"""Bytes a second to and from memory, and operations a second, of NVIDIA's data sheets (SXM,
without sparsity)."""
ONE_MODEL = 3.0
"""Times the speed of the official code on the same GPU, one small model."""
AGGREGATE = 30.0
"""Model-steps per second of the best ensemble, against the official code's one at a time."""
MILLISECONDS = {("sraven", "hyla"): 0.25, ("logic", "hyla"): 0.06}
"""(task, kind) -> milliseconds per model and step in the best ensemble."""
OPTIMIZER_PASSES = 7
"""Weights, gradients and both moments are read, and all but the gradients written, once a step."""


def gpu_of(device: torch.device) -> str | None:
    """Return which of `PEAKS` a device is, None for others."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((known for known in PEAKS if known in name), None)


def said(what: str, reached: float, target: float, unit: str, *, at_least: bool) -> str:
    """Return the line of a report that says whether a target is reached."""
    good = reached >= target if at_least else reached <= target
    return (f"{what}: {reached:.3g} {unit}, target {'at least' if at_least else 'at most'} "
            f"{target:g}: **{'reached' if good else 'MISSED'}**.")


def least_milliseconds(config: RunConfig, precision: str, gpu: str) -> dict[str, float]:
    """Return the least milliseconds of one model's step that the peak rates allow.

    products  6 operations a weight and token, of the forward and the backward pass, without
              those of attention itself
    memory    the optimiser's passes over the weights alone; activations may stay in the cache
    """
    bandwidth, rates = PEAKS[gpu]
    weights = HookedTransformer(config.model).n_parameters
    rate = rates["bfloat16" if precision.startswith("bf16") else precision]
    tokens = config.training.batch_size * config.task.n_tokens
    return {"products": 1e3 * 6 * weights * tokens / rate,
            "memory": 1e3 * OPTIMIZER_PASSES * 4 * weights / bandwidth}


def official_milliseconds(result: Path, task: str, kind: str) -> float:
    """Return the official code's milliseconds per step from a result of `training_step`.

    `ArtifactError` where the file is none, or does not have the case.
    """
    try:
        cases: list[Mapping[str, Any]] = json.loads(result.read_text(encoding="utf-8"))["cases"]
        case = next(each for each in cases if each["name"] == f"{task}, {kind}")
        median: float = case["step"]["milliseconds"]["official"]["median"]
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise ArtifactError(f"{result} has no time of the official code for {task}, {kind}; "
                            "expected a JSON of training_step --official") from error
    return median
