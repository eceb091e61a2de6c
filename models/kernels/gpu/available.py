"""Can the kernels in Triton run here?"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch

LEAST_CAPABILITY = (8, 0)
"""The first GPUs with matrix products in bfloat16 and TF32 (Ampere)."""


def why_not(device: torch.device) -> str | None:
    """Say why the kernels cannot compute on a device; None if they can.

    On a CPU they can where Triton's interpreter runs them, for tests: TRITON_INTERPRET=1.
    """
    if device.type == "cpu":
        if os.environ.get("TRITON_INTERPRET") != "1":
            return ("tensors are on cpu; expected CUDA, or TRITON_INTERPRET=1 in the environment "
                    "for Triton's interpreter")
    elif device.type != "cuda":
        return f"tensors are on {device.type}; expected CUDA"
    if not _installed():
        return "triton is not installed; expected what PyTorch for CUDA on Linux brings"
    if device.type == "cpu":
        from latentcode.models.kernels.gpu.launch import is_interpreted

        return None if is_interpreted() else (
            "triton is imported already; expected TRITON_INTERPRET=1 before that")
    return _too_old(device)


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


@cache
def _too_old(device: torch.device) -> str | None:
    capability = torch.cuda.get_device_capability(device)
    if capability >= LEAST_CAPABILITY:
        return None
    found, least = (".".join(map(str, each)) for each in (capability, LEAST_CAPABILITY))
    return f"the GPU has compute capability {found}; expected at least {least}"
