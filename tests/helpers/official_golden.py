"""Recorded numbers of the official code: four files, packed into 230 kB.

The parameters of a group (`param`, or `param0` and `param8`) are one vector, as planes of bytes,
which compress better; `<group>.shapes` says in JSON which Flax paths it holds, and their shapes.
Each file of outputs has the first of four recorded instances.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any

import numpy as np
from places import OFFICIAL

FORWARD = ("lang__softmax_attention", "lang__linear_attention", "lang__linear_hypatt")
STEPS = "trainstep__linear_hypatt"


def official_golden(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the configuration and the arrays of a file as the official code's `.npz` has them."""
    with np.load(OFFICIAL / f"{name}.npz") as file:
        arrays = dict(file)
    for group in [key.removesuffix(".shapes") for key in arrays if key.endswith(".shapes")]:
        shapes = json.loads(str(arrays.pop(f"{group}.shapes")))
        vector = arrays.pop(group).T.copy().view(np.float32).ravel()
        ends = np.cumsum([prod(shape) for shape in shapes.values()])
        arrays |= {f"{group}/{path}": part.reshape(shape) for (path, shape), part in zip(
            shapes.items(), np.split(vector, ends[:-1]), strict=True)}
    return json.loads(str(arrays.pop("config_json"))), arrays
