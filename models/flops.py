"""How much arithmetic is a token, and how much of it can a device do?

    model-FLOP utilisation = tokens per second * FLOPs per token / peak FLOPs per second

The arithmetic is that of the model's equations: what is computed twice to save memory counts once
(Chowdhery et al., 2022, appendix B).
"""

from __future__ import annotations

import re

from latentcode.models.config import ModelConfig

PEAKS: dict[str, dict[str, float]] = {
    "H200": {"bf16": 989e12, "tf32": 494e12, "float32": 67e12},
    "H100 PCIe": {"bf16": 756e12, "tf32": 378e12, "float32": 51e12},
    "H100 NVL": {"bf16": 835e12, "tf32": 417e12, "float32": 60e12},
    "H100": {"bf16": 989e12, "tf32": 494e12, "float32": 67e12},
    "A100": {"bf16": 312e12, "tf32": 156e12, "float32": 19.5e12},
    "L4": {"bf16": 121e12, "tf32": 60e12, "float32": 30.3e12},
    "RTX 4090": {"bf16": 165e12, "tf32": 82.6e12, "float32": 82.6e12},
    "RTX 3090": {"bf16": 71e12, "tf32": 35.6e12, "float32": 35.6e12},
}
"""FLOPs per second of dense products by the words in a GPU's name, the most telling first, as
NVIDIA's data sheets give them (without sparsity; sums of bf16 products in float32)."""


def training_flops_per_token(config: ModelConfig, n_tokens: int) -> float:
    """6 N + 6 L T H (d + c d_v): forward and backward pass, the latter counted as twice the former.

    N  weights in matrix products, the read-out included and a table of embeddings not
    L, T, H, d, d_v  layers, tokens, heads, features of a query and of a value; c is 1 where values
       are added up once (softmax and linear attention) and 2 where that is done over heads and
       over keys (HYLA), d_v / 1 more for a second value matrix

    Keys after the query are counted like the others, as is usual, though a causal kernel may skip
    them. Experts count as far as tokens are routed to them.
    """
    d, heads = config.d_model, config.n_heads
    attention = heads * d * (2 * config.d_head + 2 * config.d_head_v)
    layers = {"gelu": 2, "swiglu": 3, "moe": 2 * config.top_k}[config.feedforward]
    feedforward = layers * d * config.d_mlp
    if config.feedforward == "moe":
        feedforward += d * config.n_experts
    weights = config.n_layers * (attention + feedforward) + d * config.d_output
    if config.embedding == "dense":
        weights += d * config.d_input
    sums = 1 if config.value_network == "linear" else 2
    of_key = config.d_head + sums * config.d_head_v
    if config.value_network == "deep":
        of_key += config.d_head_v**2
    return float(6 * weights + 6 * config.n_layers * n_tokens * heads * of_key)


def peak_flops(device_name: str, precision: str) -> float | None:
    """Return the FLOPs per second that a device can do at most, None where we do not know.

    precision  of the training; `bf16_mlp` is judged by `bf16`
    """
    kind = "bf16" if precision.startswith("bf16") else precision
    if "Laptop" in device_name:  # the same name, and another chip
        return None
    return next((peaks[kind] for name, peaks in PEAKS.items()
                 if re.search(rf"\b{name}\b", device_name)), None)
