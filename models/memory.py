"""How much memory is left? Asked before it is used."""

from __future__ import annotations

from pathlib import Path

import torch

MEMINFO = Path("/proc/meminfo")
GROUPS = Path("/sys/fs/cgroup")


def available(device: torch.device) -> int | None:
    """Return the bytes that are left on a device; None where it cannot be told.

    Of a GPU: with what torch holds of it and does not use. Of the CPU, on Linux: what the kernel
    says can be had without swapping, and no more than what the limit of a container (cgroup,
    version 1 or 2) leaves.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    if device.type != "cpu":
        return None
    known = [bytes_left for bytes_left in (_of_machine(), _of_group()) if bytes_left is not None]
    return min(known, default=None)


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
