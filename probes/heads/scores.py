"""Scores of heads with intervals, and by how much they are above a control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import stdtrit

from latentcode.probes.common.bootstrap import (
    LEVEL,
    percentile_interval,
    resampled_ratios,
    same_weights,
)


@dataclass(frozen=True)
class Scores:
    """Ratios of sums over groups of texts, with groups resampled.

    value       [...]
    replicates  [R, ...], those of the same seed and groups of the same draws
    n           what the sums are over: tokens, queries or pairs
    n_clusters  groups
    """

    value: np.ndarray
    replicates: np.ndarray
    n: int
    n_clusters: int

    @classmethod
    def of(
        cls, sums: np.ndarray, sizes: np.ndarray, n: int, n_bootstrap: int, seed: int
    ) -> Scores:
        """Return sum_g sums_g / sum_g sizes_g of sums [G, ...] and sizes, of the same axes."""
        whole, replicates = (resampled_ratios(sums, sizes, weights) for weights in (
            np.ones((1, len(sums))), same_weights(len(sums), n_bootstrap, seed)))
        return cls(whole[0], replicates, n, len(sums))

    def __getitem__(self, at: Any) -> Self:
        return replace(self, value=self.value[at], replicates=self.replicates[
            :, *(at if isinstance(at, tuple) else (at,))])

    def __sub__(self, other: Self) -> Self:
        return replace(self, value=self.value - other.value,
                       replicates=self.replicates - other.replicates)

    @cached_property
    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the 95 % intervals, [...] each."""
        return percentile_interval(self.replicates, self.n_clusters)

    @property
    def size(self) -> dict[str, int]:
        """What tables say of how much it is of."""
        return {"n": self.n, "n_clusters": self.n_clusters}

    def row(
        self, at: tuple[int, ...] = (), names: Sequence[str] = ("value", "low", "high")
    ) -> dict[str, float]:
        """Return one of the scores and the ends of its interval, by these names."""
        numbers = (self.value, *self.interval)
        return {name: float(x[at]) for name, x in zip(names, numbers, strict=True)}


@dataclass(frozen=True)
class Draws(Scores):
    """Scores of something that was drawn at random, several times: where another draw would lie.

    replicates  the score of each draw over its own part of the groups, [K, ...]

        interval = value +- t_(K-1) sd_k(replicates) sqrt(1 + 1/K)
    """

    @classmethod
    def of_parts(cls, sums: np.ndarray, sizes: np.ndarray, n: int, draw: np.ndarray) -> Self:
        """Return the ratios of `Scores.of`, and those of the groups of each draw.

        draw  int [G], the draw that each group was given; one without groups is left out
        """
        parts = (draw == np.unique(draw)[:, None]).astype(float)
        whole, replicates = (resampled_ratios(sums, sizes, weights) for weights in (
            np.ones((1, len(sums))), parts))
        return cls(whole[0], replicates, n, len(sums))

    @cached_property
    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of the 95 % prediction intervals of one draw, [...] each; NaN of one draw."""
        k = len(self.replicates)
        if k < 2:
            nothing = np.full(self.value.shape, np.nan)
            return nothing, nothing
        half = (stdtrit(k - 1, (1.0 + LEVEL) / 2.0) * self.replicates.std(axis=0, ddof=1)
                * np.sqrt(1.0 + 1.0 / k))
        return self.value - half, self.value + half


def effect_rows(
    patch: str, layer: int, heads: Sequence[int], quantities: Sequence[str], scores: Scores, *,
    beside: tuple[Scores, Scores] | None = None, against: str = "",
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of effects of heads of a layer, and of contrasts with a control.

    scores   [Q, H], quantities and heads
    beside   where there is a control, the scores of the same and of the control where it is
    against  what the control is called
    """
    rows: list[dict[str, Any]] = []
    contrasts: list[dict[str, Any]] = []
    above = None if beside is None else beside[0] - beside[1]
    for h, head in enumerate(heads):
        for q, quantity in enumerate(quantities):
            place = {"patch": patch, "layer": layer, "head": head, "quantity": quantity}
            row = {**place, **scores.row((q, h)), **scores.size}
            if beside is not None and above is not None:
                row |= beside[1].row((q, h), ("control", "control_low", "control_high"))
                contrasts.append({**place, "against": against, **above.row((q, h)),
                                  **above.size})
            rows.append(row)
    return rows, contrasts
