"""What is computed on: devices, the memory that is left, and seeds of what is random."""

from __future__ import annotations

import os
import platform
import zlib
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from latentcode.errors import ConfigError, check

if TYPE_CHECKING:
    import torch


def resolve_device(name: str) -> torch.device:
    """Return the device `cpu`, `cuda` or `cuda:N`; `ConfigError` if this machine lacks it."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device is {name!r}; expected cpu, cuda or cuda:N") from None
    check(device.type in ("cpu", "cuda"),
          f"device is {name!r}; expected cpu, cuda or cuda:N")
    if device.type == "cuda":
        check(torch.cuda.is_available(),
              f"device is {name!r}, but torch {torch.__version__} finds no CUDA device here; "
              "expected cpu, or a machine with a GPU and a CUDA build of torch")
        count = torch.cuda.device_count()
        check((device.index or 0) < count,
              f"device is {name!r}; expected an index below {count}, the number of CUDA devices")
    return device


BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""What torch calls arithmetic in bfloat16 on x86 (two) and on ARM processors."""


def has_bfloat16(device: torch.device) -> bool:
    """Whether a processor or GPU computes in bfloat16 itself, rather than by emulation."""
    import torch

    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if not hasattr(torch.cpu, "get_capabilities"):  # before torch 2.13, at the latest
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    able = torch.cpu.get_capabilities()
    return any(able.get(name, False) for name in BFLOAT16)


def check_precision(precision: str, device: torch.device) -> None:
    """Raise `ConfigError` for a precision that `device` could only emulate.

    Measured on a processor with AVX2 alone: fuzzy logic, HYLA, 906 ms an update with bf16_mlp and
    59 ms in float32.
    """
    if precision.startswith("bf16") and not has_bfloat16(device):
        raise ConfigError(
            f"training.precision is {precision!r}, but {device_name(str(device))} has no bfloat16 "
            "arithmetic, and emulating it takes about 15 times as long as float32; expected "
            "float32 here (a run that was begun in bfloat16 goes on where there is some: x86 "
            "processors with AVX512-BF16 or AMX, ARM processors with BF16, GPUs since Ampere)")


EVALUATION_BATCH = 4_096
"""Instances of one forward pass of an evaluation on a GPU, whose kernels a training batch is far
too small to fill."""
MOST_LOGITS = 2**28
"""Numbers that the logits of one forward pass of an evaluation may be: a gigabyte."""


def evaluation_batch(batch_size: int, device: torch.device, n_logits: int = 1) -> int:
    """Return how many instances to evaluate at once; the result depends on it by rounding only.

    n_logits  numbers that a model says of one instance: tokens times width of the read-out
    """
    wanted = batch_size if device.type == "cpu" else max(batch_size, EVALUATION_BATCH)
    return max(1, min(wanted, MOST_LOGITS // n_logits))


def device_name(name: str) -> str:
    """Return the model of a GPU or of the processor."""
    if name.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(name)
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def available_cores() -> int:
    """Return how many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


BELOW = 2**63
"""What torch's generators take."""
BELOW_OF_NUMPY = 2**32
"""What numpy's older generators take, and with them t-SNE and UMAP."""


def checked_seed(seed: object, name: str = "seed", below: int = BELOW) -> int:
    """Return a seed as an `int`; `ConfigError` unless 0 <= seed < `below`, a whole number."""
    whole = isinstance(seed, Integral) and not isinstance(seed, bool)
    check(whole and 0 <= int(seed) < below,  # type: ignore[call-overload]
          f"{name} is {seed!r}; expected a whole number from 0 to 2^{below.bit_length() - 1} - 1")
    return int(seed)  # type: ignore[call-overload]


def make_generator(
    seed: int, purpose: str, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a generator whose stream depends on (seed, purpose) only.

    `purpose` is a phrase such as "train data" or "extract ood". Streams of different purposes
    or seeds are independent (numpy's `SeedSequence`). On the CPU they are the same on every
    machine; a CUDA generator draws other numbers from the same seed.
    """
    import numpy as np
    import torch

    sequence = np.random.SeedSequence([checked_seed(seed), zlib.crc32(purpose.encode())])
    state = int(sequence.generate_state(1, np.uint64)[0])
    return torch.Generator(device).manual_seed(state >> 1)  # torch takes 63 bits


MEMINFO = Path("/proc/meminfo")
GROUPS = Path("/sys/fs/cgroup")


def available_memory(device: torch.device) -> int | None:
    """Return the bytes that are left on a device; None where it cannot be told.

    Of a GPU: with what torch holds of it and does not use. Of the CPU, on Linux: what can be had
    without swapping, within the limit of a container (cgroup, version 1 or 2).
    """
    import torch

    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type != "cpu":
        return None
    return min((left for left in (_of_machine(), _of_group()) if left is not None), default=None)


def _of_machine() -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines
                    if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # another system
        return None


def _of_group() -> int | None:
    for folder, limit, used, cached in (
        (GROUPS, "memory.max", "memory.current", "inactive_file "),
        (GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
         "total_inactive_file "),
    ):
        try:
            most = (folder / limit).read_text(encoding="ascii").strip()
            if most == "max":
                return None
            taken = int((folder / used).read_text(encoding="ascii"))
            # Files that were read count, and are let go of when memory is needed.
            files = sum(int(line.split()[1]) for line in (folder / "memory.stat").read_text(
                encoding="ascii").splitlines() if line.startswith(cached))
            return max(int(most) - taken + files, 0)
        except (OSError, ValueError):
            continue
    return None


def readable(n_bytes: int) -> str:
    """Return `37.3 GiB`."""
    power = min(max(n_bytes.bit_length() - 1, 0) // 10, 4)
    return f"{n_bytes / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
