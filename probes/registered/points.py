"""What a registered probe is given: points with a class each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Points:
    """The features of N problems, in one layer and at one pair, with the label that is asked about.

    x            float64 [N, d]
    y            int64 [N], the class of each, a number from 0; the same for points that are fitted
                 and scored
    combination  int64 [N], the combination of each, likewise
    classes      the values of the label that the numbers stand for

    The arrays cannot be written to.
    """

    x: np.ndarray
    y: np.ndarray
    combination: np.ndarray
    classes: Sequence[object]

    def __post_init__(self) -> None:
        for name in ("x", "y", "combination"):
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    def __len__(self) -> int:
        return len(self.x)
