"""Kernels of the attention core: the names that they serve."""

from __future__ import annotations

# Not asked of `latentcode.models.config`, because a name that is added there is none of theirs yet.
SERVED_NORMALIZATIONS: dict[str, int] = {
    "none": 0, "softmax": 1, "rms_head": 2, "softmax_rms_head": 3}
SERVED_VALUE_NETWORKS: tuple[str, ...] = ("linear", "hyla", "hyla_linear")
SERVED_NONLINEARITIES: tuple[str, ...] = ("identity", "relu", "gelu", "silu", "sigmoid", "tanh")
"""In the order of their numbers."""
