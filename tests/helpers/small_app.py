"""The explorer on small folders: codes that are drawn, and nothing of the zoo."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import streamlit as st

from latentcode.app.server import ROOTS
from latentcode.codes import LatentCodes
from latentcode.probes.projection.cache import VARIABLE
from latentcode.tasks.pairs import Pair

RULES = ("constant", "sum", "difference")


def open_folders(patch: pytest.MonkeyPatch, cache: Path, folders: Sequence[Path]) -> None:
    """Let the explorer see these folders alone, and keep what it computes in `cache`."""
    patch.setenv(ROOTS, json.dumps([str(folder) for folder in folders]))
    patch.setenv(VARIABLE, str(cache))
    patch.setattr("latentcode.app.data.sources.zoo_folders", dict)
    st.cache_data.clear()
    st.cache_resource.clear()


def drawn_codes(seed: int = 0, n: int = 90, *, instances: int = 0) -> LatentCodes:
    """Return codes that depend on a rule, seed by seed in another direction.

    instances  seed of the labels: equal ones stand for the same instances
    """
    rng, labels = np.random.default_rng(seed), np.random.default_rng(1_000 + instances)
    rule = labels.integers(0, len(RULES), n)
    direction = rng.normal(size=(len(RULES), 6))
    scores = direction[rule][:, None, None] + 0.1 * rng.normal(size=(n, 2, 2, 6))
    scores[:, 0, 0] = scores[0, 0, 0]  # nothing is known yet
    table = pd.DataFrame({
        "rule_0": np.array(RULES, dtype=object)[rule],
        "combination": [f"{RULES[r]}, {RULES[k]}" for r, k in zip(
            rule, labels.integers(0, 3, n), strict=True)],
        "split": "ood", "loss": rng.random(n), "accuracy": (rng.random(n) < 0.8).astype(float)})
    return LatentCodes(scores.astype(np.float32), table,
                       (Pair("response->response", "the response to itself", 0),
                        Pair("response->row3", "the response to the last row", 0)),
                       (0, 1), {"split": "ood", "run": f"run {seed}", "seed": 0})


def plain(spec: Any) -> Any:
    """Return the specification of a chart with its arrays, which travel as bytes, as lists."""
    if isinstance(spec, list):
        return [plain(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    if "bdata" in spec:
        array = np.frombuffer(base64.b64decode(spec["bdata"]), spec["dtype"])
        shape = [int(n) for n in str(spec.get("shape", len(array))).split(",")]
        return array.reshape(shape).tolist()
    return {key: plain(part) for key, part in spec.items()}
