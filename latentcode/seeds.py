"""One seed, many independent random streams, each known by what it is for."""

from __future__ import annotations

import zlib
from numbers import Integral
from typing import TYPE_CHECKING

from latentcode.errors import check

if TYPE_CHECKING:
    import torch

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
    machine; a CUDA generator draws other numbers from the same seed. `ConfigError` for a seed that
    is not a whole number from 0 to 2^63 - 1.
    """
    import numpy as np
    import torch

    sequence = np.random.SeedSequence([checked_seed(seed), zlib.crc32(purpose.encode())])
    state = int(sequence.generate_state(1, np.uint64)[0])
    return torch.Generator(device).manual_seed(state >> 1)  # torch takes 63 bits
