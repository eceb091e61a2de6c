"""Is what is made of B's points fitted on training points alone, and scored as one expects?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from latentcode.codes import LatentCodes
from latentcode.probes.alignment.matching import N_RANDOM, Transfer, match_heads, random_match
from latentcode.probes.alignment.result import ALIGNMENTS
from latentcode.probes.common.rotation import fit_rotation

Planted = Callable[..., LatentCodes]
ORDER = np.array([3, 0, 7, 1, 2, 11, 4, 10, 5, 6, 9, 8])


class Recorder:
    """A probe that keeps what it is asked about."""

    def __init__(self, answer: np.ndarray) -> None:
        self.answer, self.asked = answer, []  # type: np.ndarray, list[np.ndarray]

    def predict(self, points: np.ndarray) -> np.ndarray:
        self.asked.append(points)
        return self.answer


def given_to_probe(
    codes: tuple[LatentCodes, LatentCodes], x: Any, y: Any
) -> dict[str, list[np.ndarray]]:
    """Return what A's probe is given, by alignment."""
    scorer = Transfer.of(codes, "term_1", "query->query", 100, 0)
    probe: Any = Recorder(scorer.target.heldout)
    scorer.scores(probe, x, y)
    asked = iter(probe.asked)
    return {name: [next(asked) for _ in range(N_RANDOM if "random" in name else 1)]
            for name in ALIGNMENTS}


@pytest.fixture
def codes(planted: Planted) -> tuple[LatentCodes, LatentCodes]:
    return planted("train"), planted("ood")


def points(codes: tuple[LatentCodes, LatentCodes]) -> tuple[np.ndarray, np.ndarray]:
    train, heldout = (c.select(layer=1, pair="query->query").astype(float) for c in codes)
    return train, heldout


def test_heldout_points_of_b_determine_nothing(codes: tuple[LatentCodes, LatentCodes]) -> None:
    x = points(codes)
    y = tuple(2.0 * part[:, ORDER] + 3.0 for part in x)
    noise = np.random.default_rng(0).normal(size=y[1].shape)
    found = given_to_probe(codes, x, (y[0], noise))
    match, rotation = match_heads(x[0], y[0]), fit_rotation(x[0], y[0])
    np.testing.assert_array_equal(match.order, np.argsort(ORDER))
    np.testing.assert_allclose(found["own"][0], x[1])
    np.testing.assert_allclose(found["raw"][0], noise)
    np.testing.assert_allclose(found["matched"][0], noise[:, np.argsort(ORDER)])
    np.testing.assert_allclose(found["rotated"][0], rotation.apply(noise))
    np.testing.assert_allclose(found["matched, scaled"][0],
                               (noise[:, np.argsort(ORDER)] - 3.0) / 2.0)


def test_random_matches_are_permutations_that_differ(
    codes: tuple[LatentCodes, LatentCodes]
) -> None:
    x = points(codes)
    found = given_to_probe(codes, x, x)["random"]
    orders = set()
    for variant in found:
        same = np.abs(variant[:, :, None]) == np.abs(x[1][:, None, :])
        order = same.all(axis=0)
        assert (order.sum(axis=0) == 1).all()
        assert (order.sum(axis=1) == 1).all()
        orders.add(tuple(order.argmax(axis=1).tolist()))
    assert len(orders) == N_RANDOM
    rng = np.random.default_rng(0)
    drawn = [random_match(3, signed, rng) for signed in (False, True) for _ in range(100)]
    assert len({tuple(m.order.tolist()) for m in drawn}) == 6
    assert all((m.sign == 1.0).all() for m in drawn[:100])
    assert {sign for m in drawn[100:] for sign in m.sign.tolist()} == {-1.0, 1.0}
