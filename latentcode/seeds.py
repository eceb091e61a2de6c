"""One seed, many independent random streams, each known by what it is for."""

from __future__ import annotations

import zlib

import numpy as np
import torch


def make_generator(
    seed: int, purpose: str, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a generator whose stream depends on (seed, purpose) only.

    `purpose` is a phrase such as "train data" or "extract ood". Streams of different purposes
    or seeds are independent (numpy's `SeedSequence`). On the CPU they are the same on every
    machine; a CUDA generator draws other numbers from the same seed.
    """
    sequence = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
    state = int(sequence.generate_state(1, np.uint64)[0])
    return torch.Generator(device).manual_seed(state >> 1)  # torch takes 63 bits
