"""Does a function draw from a random state that is the whole process's, and not its own?"""
# ruff: noqa: NPY002  (it is numpy's older generator that has such a state)

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

T = TypeVar("T")


def under_other_seeds(function: Callable[[], T]) -> tuple[tuple[T, T], list[str]]:
    """Return what a function returns under two global seeds, and from which states it drew.

    The states, those of the CPU, are afterwards as they were.
    """
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        (first, drew), (second, drew_again) = (_under_seed(seed, function) for seed in (1, 2))
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])
    return (first, second), list(dict.fromkeys([*drew, *drew_again]))


def _under_seed(seed: int, function: Callable[[], T]) -> tuple[T, list[str]]:
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    before = _states()
    result = function()
    return result, [name for name, state in _states().items() if state != before[name]]


def _states() -> dict[str, Any]:
    of_numpy: Any = np.random.get_state()
    return {"torch's global random state": torch.get_rng_state().tolist(),
            "numpy's global random state": (of_numpy[1].tolist(), *of_numpy[2:]),
            "the global random state of Python's random": random.getstate()}


__all__ = ["under_other_seeds"]
